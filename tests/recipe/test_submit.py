"""recipe/ditto/submit: the submission to each backend, word for word, and that no key is in it."""

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("verl")

from recipe.ditto import submit as command
from recipe.ditto.submit import BACKENDS, ROOT, CheckedRun, submission
from soul.cli.error_border import USER_ERROR
from soul.errors import BadSettings
from soul.testing import FakeOpenAI, Json
from tests.mistakes.training_places import ELSEWHERE, ROW, write

KEY = "sk-of-a-test-4711-never-shown"
WORDS = ("hitom", "trainer.nnodes=2", "run.dir='my \"run\" of $HOME'", "judge.model=it's")  # as the program gets them
TRAINING = CheckedRun(
    words=WORDS,
    name="ditto-rl-hitom",
    variables={"DATA_DIR": "data", "PLATFORM": "gpu", "HF_HOME": "/disk/of/this/machine"},
    keys=("OPENAI_API_KEY",),
    nodes=2,
    gpus=8,
    cpus=27,
)


def words_in_a_shell(text: str) -> list[str]:
    """Split a command as a shell does."""
    printed = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, text=True, check=True, timeout=60
    )
    return printed.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", BACKENDS)
def test_the_overrides_arrive_as_they_were_given_and_no_key_is_shown(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces, both quotes and a dollar survive each shell on the way."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    words = submission(name, TRAINING, {})
    if name == "ray":  # `ray job submit` quotes the words, and the head node's shell reads them
        words = words_in_a_shell(shlex.join(words[words.index("--") + 1 :]))
    assert tuple(words[-4:]) == WORDS
    with pytest.raises(BadSettings, match="contains the value of a key") as refused:
        submission(name, replace(TRAINING, words=(*WORDS, f"judge.model={KEY}")), {})
    assert KEY not in str(refused.value)


def test_slurm_gets_nodes_and_a_judge_of_its_own() -> None:
    size = ["--job-name=ditto-rl-hitom", "--nodes=2", "--gpus-per-node=8"]
    script = [str(ROOT / "recipe/ditto/slurm/ditto.sbatch"), str(ROOT), "--num-cpus=27", *WORDS]
    assert submission("slurm", TRAINING, {}) == ["sbatch", *size, *script]
    whole = ["--ntasks-per-node=1", "--exclusive", "--mem=0"]  # of the node: the file's options are the training's
    judged = submission("slurm", TRAINING, {"JUDGE_MODEL_PATH": "Qwen/Qwen3-32B", "JUDGE_GPUS": "4"})
    assert judged == ["sbatch", *size, ":", "--nodes=1", "--gpus-per-node=4", *whole, *script]


def test_a_ray_job_starts_in_this_folder_with_the_variables_of_the_launcher() -> None:
    words = submission("ray", TRAINING, {})
    assert words[:4] == ["ray", "job", "submit", "--no-wait"]
    assert json.loads(words[words.index("--runtime-env-json") + 1]) == {"env_vars": TRAINING.variables}
    run = ["env", f"--chdir={Path.cwd()}", "bash", str(ROOT / "recipe/ditto/run_rl.sh")]
    assert words[words.index("--") + 1 :][:4] == run


def test_the_training_is_checked_before_it_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command: a dry run, a mistake that a program named sbatch never sees, and a submission."""
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
        assert "64 generations" in shown and "Would submit to slurm, 2 nodes of 1 processes:" in shown
        assert f"sbatch --job-name=ditto-rl-hitom --nodes=2 {ROOT}/recipe/ditto/slurm/ditto.sbatch" in shown
        assert "names of their variables: OPENAI_API_KEY" in shown and KEY not in shown
        assert command.main([*words, "data.train_batch_size=5"]) == USER_ERROR
        assert not (tmp_path / "called").exists()
        assert command.main(words) == 0 and (tmp_path / "called").exists()
        asked = len(judge.requests)
        monkeypatch.setenv("JUDGE_MODEL_PATH", "Qwen/Qwen3-32B")  # the job's own judge does not run yet
        monkeypatch.setenv("JUDGE_MODEL_NAME", "unset at the end of the test")
        capsys.readouterr()
        assert command.main([*words, "--dry-run"]) == 0 and len(judge.requests) == asked
        assert "Qwen/Qwen3-32B at http://judge-node-of-the-job/v1" in capsys.readouterr().out
