"""recipe/ditto/distill.sh: three steps, each with what it needs, and none twice on the same inputs.

The steps themselves are stand-ins; what decides whether they run is not.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ditto.launching.variables import names_in
from soul.examples.__main__ import write
from soul.tasks import launch
from tests.soul.evaluate.vllm_replaced import model, write_weights

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "recipe" / "ditto" / "distill.sh"
SAYS = (
    'echo "$0 $*" >>"$LOG"\n'
    'env | grep -E "^(DATA_DIR|TRAIN_FILES|VAL_FILES|ACTOR_MODEL_PATH|TASKS|LIMIT)=" | sort >>"$LOG"\n'
)
# What scripts/env asks an interpreter: whether it has the training stack, and its name.
HAS_STACK = 'case $1 in -) exit 0 ;; -c) echo "$0"; exit ;; esac\n'
REAL_STEPS = f'if [ "$2" = sft.distill.steps ]; then exec {sys.executable} "$@"; fi\n'
MAKES = {
    "python": '[[ "$*" = *--dry-run* ]] || { mkdir -p "$4"; echo "$*" >"$4/train.parquet"; touch "$4/val.parquet"; }',
    "run_sft.sh": 'mkdir -p "$OUTPUT_DIR/$EXPERIMENT_NAME"; cp base/* "$OUTPUT_DIR/$EXPERIMENT_NAME"',
    "recipe/ditto/eval.sh": '[ -n "${DRY_RUN:-}" ] || echo "the table" >"$OUTPUT_DIR/$EXPERIMENT_NAME-models.md"',
}
TASKS = ("hitom", "sotopia", "coser")
EXPERTS = (
    "hitom=outputs/a sotopia:mine.parquet=outputs/b coser=outputs/a coser:other.parquet=endpoint:m@http://h/v1#KEY"
)


@pytest.fixture
def run(tmp_path):
    for name, makes in MAKES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{HAS_STACK + REAL_STEPS if name == 'python' else ''}{SAYS}{makes}\n")
        path.chmod(0o755)
    for path in (SCRIPT, SCRIPT.with_name("distill_step")):
        shutil.copy(path, tmp_path / "recipe" / "ditto")
    shutil.copytree(SCRIPT.parents[2] / "scripts", tmp_path / "scripts")
    for task in TASKS:
        write([task], 2, tmp_path / "data" / "sim_rl_data" / f"{launch(task).train}.parquet")
        write([task], 1, tmp_path / "data" / "sim_eval_data" / f"{launch(task).val}.parquet")
    write(["sotopia"], 1, tmp_path / "mine.parquet")
    write(["coser"], 1, tmp_path / "other.parquet")
    for name in ("base", "outputs/a", "outputs/b"):
        model(tmp_path / name, name.encode())
    log = tmp_path / "log"

    def run(*words, code=0, **variables):
        log.write_text("")
        plain = {"PATH": os.environ["PATH"], "LOG": str(log), "PLATFORM": "cpu", "PYTHON": str(tmp_path / "python")}
        plain |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "ACTOR_MODEL_PATH": "base"}
        command = ["bash", str(tmp_path / "recipe" / "ditto" / "distill.sh"), *words]
        done = subprocess.run(
            command, cwd=tmp_path, env={**plain, **variables}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, done.stderr
        return log.read_text().replace(f"{tmp_path}/", "").splitlines(), done

    return run


def steps_of(said):
    """The steps that ran."""
    names = {"python": "data", "run_sft.sh": "student", "recipe/ditto/eval.sh": "evaluation"}
    return [names[line.split()[0]] for line in said if line.split()[0] in names]


def test_three_steps_once_and_again_after_an_expert_has_changed(run, tmp_path):
    words = ["judge.model=j", "policy.max_output_tokens=9"]
    said, done = run(*words, EXPERTS=EXPERTS, TP="2", KEEP_ARGS="--margin 0.1", LIMIT="7")
    data = "outputs/distilled/data"
    assert said[0] == (
        f"python -m sft.distill --out {data} --n 8 --limit 1024 --tp 2 --not-in hitom --not-in sotopia --not-in coser "
        f"--weight 1 --margin 0.1 {EXPERTS} judge.model=j policy.max_output_tokens=9"
    )
    train = next(i for i, line in enumerate(said) if line.startswith("run_sft.sh"))
    assert said[train + 1 : train + 5] == [
        "ACTOR_MODEL_PATH=base",
        f"DATA_DIR={data}",
        "LIMIT=7",
        f"TRAIN_FILES='{data}/train.parquet'",
    ]
    assert said[train + 5] == f"VAL_FILES='{data}/val.parquet'"
    evaluate = next(i for i, line in enumerate(said) if "eval.sh" in line)
    assert said[evaluate] == (
        "recipe/ditto/eval.sh local --model=base --model=outputs/a --model=outputs/b "
        "--model=outputs/distilled/student judge.model=j policy.max_output_tokens=9"
    )
    assert said[evaluate + 1 :] == [
        "ACTOR_MODEL_PATH=base",
        "LIMIT=7",
        "TASKS=hitom sotopia coser",
    ]
    assert done.stdout.endswith("the table\n")

    given = {"EXPERTS": EXPERTS, "KEEP_ARGS": "--margin 0.1", "LIMIT": "7"}  # TP changes no result
    said, done = run(*words, **given)
    assert steps_of(said) == [] and done.stdout.count("nothing that it depends on has changed") == 3
    write_weights(tmp_path / "outputs" / "a" / "model.safetensors", b"trained on")
    new = (tmp_path / "python").read_text() + 'echo of the new expert >>"$4/train.parquet"\n'
    (tmp_path / "python").write_text(new)
    said, done = run(*words, **given)
    assert steps_of(said) == ["data", "student", "evaluation"]
    assert "data: runs again: model outputs/a has changed (" in done.stdout
    assert f"student: runs again: file {data}/train.parquet has changed (" in done.stdout
    kept = ["1-data/data/train.parquet", "2-evaluation/eval-models.md", "3-student/student/config.json"]
    assert all((tmp_path / "outputs" / "distilled" / "replaced" / name).is_file() for name in kept)


def test_a_step_that_fails_ends_it_unfinished(run, tmp_path):
    train = tmp_path / "run_sft.sh"
    train.write_text(train.read_text() + "exit 3\n")
    said, _ = run(EXPERTS="hitom=outputs/a", KEEP_ARGS="--rows-per-task 9", code=3)
    assert steps_of(said) == ["data", "student"] and "--weight" not in said[0], "a number of rows is a balance too"
    stamps = {name: (tmp_path / "outputs/distilled/steps" / f"{name}.json").read_text() for name in ("data", "student")}
    assert '"finished": true' in stamps["data"] and '"finished": false' in stamps["student"]


def test_a_dry_run_plans_sampling_and_evaluation_and_trains_nothing(run, tmp_path):
    said, done = run("judge.model=j", EXPERTS="hitom=outputs/a", DRY_RUN="1", SUITE="paper", WEIGHTS="1 hitom=2")
    commands = [line for line in said if "=" not in line.split()[0]]
    assert [line.split()[0] for line in commands] == ["python", "recipe/ditto/eval.sh"]
    assert "--dry-run" in commands[0] and "--weight hitom=2 --weight 1 " in commands[0]
    # the student is not there yet
    assert commands[1] == "recipe/ditto/eval.sh local --model=base --model=outputs/a judge.model=j"
    assert "the same calls as that of the base" in done.stdout
    assert not (tmp_path / "outputs/distilled/steps").exists()


def test_names_with_spaces_arrive_whole(run, tmp_path):
    write(["hitom"], 2, tmp_path / "my rows.parquet")
    said, _ = run(EXPERTS="hitom=outputs/a", OUTPUT_DIR="my outputs", TRAIN_FILES="'my rows.parquet'")
    assert steps_of(said) == ["data", "student", "evaluation"]
    files = [line for line in said if line.startswith("TRAIN_FILES='my outputs")]
    assert [names_in("TRAIN_FILES", dict([line.split("=", 1)])) for line in files] == [
        ["my outputs/distilled/data/train.parquet"]
    ]
    assert any("--model=base --model=outputs/a --model=my outputs/distilled/student" in line for line in said)
