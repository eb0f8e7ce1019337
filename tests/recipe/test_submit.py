"""recipe/ditto/submit: what each backend would submit, word for word, and that no key is in it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

pytest.importorskip("verl")

from ditto.settings import BadConfig
from recipe.ditto import submit as command
from recipe.ditto.submit import ROOT, Training, plain_name, to_kuberay, to_ray, to_skypilot, to_slurm
from soul.cli.error_border import USER_ERROR
from soul.errors import BadSettings
from soul.testing import FakeOpenAI, Json
from tests.mistakes.training_places import ELSEWHERE, ROW, write

KEY = "sk-of-a-test-4711-never-shown"
AWKWARD = ("trainer.nnodes=2", "run.dir='my \"run\" of $HOME'", "judge.model=it's")  # as the program gets them
TRAINING = Training(
    task="hitom",
    overrides=AWKWARD,
    name="ditto-rl-hitom",
    variables={"DATA_DIR": "data", "PLATFORM": "gpu", "HF_HOME": "/disk/of/this/machine"},
    keys=("OPENAI_API_KEY",),
    nodes=2,
    gpus=8,
    cpus=27,
)
VOLUMES = {"VOLUME": "shared", "IMAGE": "registry/ditto:gpu"}
SUBMISSIONS = {name: backend(TRAINING, VOLUMES) for name, backend in command.BACKENDS.items()}


def words_in_a_shell(text: str) -> list[str]:
    """What a shell makes of a command."""
    printed = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, text=True, check=True, timeout=60
    )
    return printed.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_the_overrides_arrive_as_they_were_given(name: str) -> None:
    """Spaces, both quotes and a dollar survive each shell on the way."""
    submission = SUBMISSIONS[name]
    if name == "skypilot":
        last_line = yaml.safe_load(submission.document)["run"].rstrip().splitlines()[-1]
        words = words_in_a_shell(last_line)
    elif name == "kuberay":
        words = words_in_a_shell(yaml.safe_load(submission.document)["spec"]["entrypoint"])
    else:
        words = list(submission.command)
        if name == "ray":  # `ray job submit` quotes the words, and the head node's shell reads them
            words = words_in_a_shell(shlex.join(words[words.index("--") + 1 :]))
    assert words[-4:] == ["hitom", *AWKWARD]
    assert shlex.split(submission.shown().splitlines()[-2])[-1] == submission.command[-1]


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_key_is_named_and_never_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    shown = command.BACKENDS[name](TRAINING, VOLUMES).shown()
    assert KEY not in shown and ("OPENAI_API_KEY" in shown or name == "ray")


def test_a_submission_with_the_value_of_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(BadSettings, match="contains the value of a key") as refused:
        to_slurm(replace(TRAINING, overrides=(f"judge.model={KEY}",)), {})
    assert KEY not in str(refused.value)


def test_slurm_gets_nodes_and_a_judge_of_its_own() -> None:
    size = ["--job-name=ditto-rl-hitom", "--nodes=2", "--gpus-per-node=8"]
    script = [str(ROOT / "recipe/ditto/slurm/ditto.sbatch"), str(ROOT), "--num-cpus=27", "hitom", *AWKWARD]
    assert list(to_slurm(TRAINING, {}).command) == ["sbatch", *size, *script]
    whole = ["--ntasks-per-node=1", "--exclusive", "--mem=0"]  # of the node: the file's options are the training's
    judged = to_slurm(TRAINING, {"JUDGE_MODEL_PATH": "Qwen/Qwen3-32B", "JUDGE_GPUS": "4"}).command
    assert list(judged) == ["sbatch", *size, ":", "--nodes=1", "--gpus-per-node=4", *whole, *script]
    with pytest.raises(BadSettings, match="JUDGE_GPUS=all: use a whole number"):
        to_slurm(TRAINING, {"JUDGE_MODEL_PATH": "Qwen/Qwen3-32B", "JUDGE_GPUS": "all"})


def test_a_judge_of_the_job_is_not_asked_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[list[str], bool]] = []

    def checked(_task: str, overrides: list[str], _environment: object, asks_judges: bool) -> tuple[Training, str]:
        asked.append((overrides, asks_judges))
        return TRAINING, "the plan"

    monkeypatch.setattr(command, "checked", checked)
    monkeypatch.setenv("JUDGE_MODEL_NAME", "unset at the end of the test")
    monkeypatch.setenv("JUDGE_MODEL_PATH", "Qwen/Qwen3-32B")
    assert command.main(["slurm", "--dry-run", "hitom", "trainer.nnodes=2"]) == 0
    monkeypatch.delenv("JUDGE_MODEL_PATH")
    assert command.main(["slurm", "--dry-run", "hitom"]) == 0
    assert asked == [(["judge.api_key_env=none", "trainer.nnodes=2"], False), ([], True)]
    assert "for 2 nodes with 8 GPUs each:" in capsys.readouterr().out


def test_a_ray_job_starts_in_this_folder_with_the_variables_of_the_launcher() -> None:
    words = list(to_ray(TRAINING, {}).command)
    assert words[:4] == ["ray", "job", "submit", "--no-wait"]
    assert json.loads(words[words.index("--runtime-env-json") + 1]) == {"env_vars": TRAINING.variables}
    assert words[words.index("--") + 1 :][:4] == [
        *("env", f"--chdir={Path.cwd()}", "bash", str(ROOT / "recipe/ditto/run_rl.sh"))
    ]


def test_other_machines_get_neither_our_cache_nor_our_paths() -> None:
    for submission in (SUBMISSIONS["skypilot"], SUBMISSIONS["kuberay"]):
        assert "/disk/of/this/machine" not in submission.shown()
    for name, text in {"DATA_DIR": "/my/data", "TRAIN_FILES": "data/a.parquet '/my b.parquet'"}.items():
        with pytest.raises(BadConfig, match=f"^{name}=.* is a path of this machine"):
            replace(TRAINING, variables={name: text}).portable_variables()


def test_skypilot_reads_keys_from_the_environment() -> None:
    submission = SUBMISSIONS["skypilot"]
    assert list(submission.command) == [
        *("sky", "jobs", "launch", "--yes", "--detach-run", "--secret", "OPENAI_API_KEY", "TASK.yaml")
    ]
    task = yaml.safe_load(submission.document)
    assert (task["num_nodes"], task["resources"]["accelerators"]) == (2, "H100:8")
    assert task["volumes"] == {"/work": "shared"}
    assert task["envs"] == {"DATA_DIR": "data", "PLATFORM": "gpu", "RAY_WORDS": "--num-cpus=27"}
    with pytest.raises(BadSettings, match="VOLUME is not set"):
        to_skypilot(TRAINING, {})


def test_kuberay_reads_keys_from_a_secret_and_only_the_hubs_in_the_worker_pods() -> None:
    network = {"HF_ENDPOINT": "https://hub.invalid", "NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1"}
    variables = {**TRAINING.variables, **network}
    with_hub = replace(TRAINING, keys=("OPENAI_API_KEY", "HF_TOKEN"), variables=variables)
    job = yaml.safe_load(to_kuberay(with_hub, VOLUMES).document)
    cluster = job["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert job["metadata"]["generateName"] == "ditto-rl-hitom-" and workers["replicas"] == 1
    pods = [group["template"]["spec"] for group in (head, workers)]
    for pod, group in zip(pods, (head, workers), strict=True):
        (container,) = pod["containers"]
        assert container["image"] == VOLUMES["IMAGE"] and container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "shared"
        assert group["rayStartParams"]["num-cpus"] == "27"
    secret = {"name": "OPENAI_API_KEY", "valueFrom": {"secretKeyRef": {"name": "ditto-keys", "key": "OPENAI_API_KEY"}}}
    assert secret in pods[0]["containers"][0]["env"]
    own = {variable["name"]: variable.get("value") for variable in pods[1]["containers"][0]["env"]}
    assert own == {**network, "HF_TOKEN": None}
    with pytest.raises(BadSettings, match="IMAGE is not set"):
        to_kuberay(TRAINING, {"VOLUME": "shared"})


@pytest.mark.parametrize(("name", "pod"), [("My run_1", "my-run-1"), ("27B", "run-27b"), ("a" * 50, "a" * 32)])
def test_a_run_gets_a_name_that_kubernetes_and_skypilot_accept(name: str, pod: str) -> None:
    assert plain_name(name) == pod


def test_the_training_is_checked_before_it_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command: a good dry run, then a mistake, which a program named sbatch never sees."""
    from recipe.demo import tiny_model

    monkeypatch.chdir(tmp_path)
    tiny_model.build(tmp_path / "model", [ROW["story"], ROW["question"], "user assistant answer"], seed=0)
    write(tmp_path / "train.parquet", *({**ROW, "index": i} for i in range(4)))
    write(tmp_path / "val.parquet", *({**ELSEWHERE, "index": i} for i in range(4)))
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "sbatch").chmod(0o755)
    values = {"TRAIN_FILES": "train.parquet", "VAL_FILES": "val.parquet", "ACTOR_MODEL_PATH": "model"}
    values |= {"OPENAI_API_KEY": KEY, "PLATFORM": "cpu", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["slurm", "hitom", "data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    words += ["data.max_prompt_length=4096", "data.max_response_length=1024", "trainer.nnodes=2"]
    with FakeOpenAI(Json({"ready": True})) as judge:
        for name, value in {**values, "OPENAI_BASE_URL": judge.url}.items():
            monkeypatch.setenv(name, value)
        assert command.main([*words, "--dry-run"]) == 0
        shown = capsys.readouterr().out
        assert "64 generations" in shown and "Would submit to slurm, for 2 nodes with 1 process each:" in shown
        assert f"sbatch --job-name=ditto-rl-hitom --nodes=2 {ROOT}/recipe/ditto/slurm/ditto.sbatch" in shown
        assert KEY not in shown and not (tmp_path / "called").exists()
        monkeypatch.setenv("DRY_RUN", "1")
        assert command.main(words) == 0 and not (tmp_path / "called").exists()
        monkeypatch.delenv("DRY_RUN")
        assert command.main([*words, "data.train_batch_size=5"]) == USER_ERROR
        assert not (tmp_path / "called").exists()
        assert command.main(words) == 0 and (tmp_path / "called").exists()
    capsys.readouterr()
    monkeypatch.setenv("IMAGE", "ditto:gpu")
    assert command.main(words) == USER_ERROR
    assert "IMAGE belongs to kuberay; slurm does not read it" in capsys.readouterr().err
