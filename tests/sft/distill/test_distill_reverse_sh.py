"""recipe/ditto/distill.sh with MODE=reverse: one training by the task's experts, and the evaluation.

The training and the evaluation themselves are stand-ins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from soul.examples.__main__ import write
from soul.tasks import launch
from tests.soul.evaluate.vllm_replaced import model, write_weights

RECIPE = Path(__file__).resolve().parents[3] / "recipe" / "ditto"
SAYS = (
    'echo "$0 $*" >>"$LOG"\n'
    'env | grep -E "^(TRAIN_FILES|VAL_FILES|ACTOR_MODEL_PATH|TASKS|EXPERIMENT_NAME)=" | sort >>"$LOG"\n'
)
MAKES = {
    "run_rl.sh": 'mkdir -p "$OUTPUT_DIR/$EXPERIMENT_NAME"; cp base/* "$OUTPUT_DIR/$EXPERIMENT_NAME"',
    "recipe/ditto/eval.sh": 'echo "the table" >"$OUTPUT_DIR/$EXPERIMENT_NAME-models.md"',
}
EXPERTS = "hitom:a.parquet=outputs/a sotopia:b.parquet=outputs/b"
Run = Callable[..., tuple[list[str], Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    for name, makes in MAKES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{SAYS}{makes}\n")
    for number, name in enumerate(("base", "outputs/a", "outputs/b")):
        model(tmp_path / name, f"{number}".encode())
    write(["hitom"], 2, tmp_path / "a.parquet")
    write(["sotopia"], 2, tmp_path / "b.parquet")
    for task in ("hitom", "sotopia"):
        write([task], 1, tmp_path / "data" / "sim_eval_data" / f"{launch(task).val}.parquet")
    for script in ("distill.sh", "distill_reverse.sh", "distill_step"):
        shutil.copy(RECIPE / script, tmp_path / "recipe" / "ditto")
    shutil.copytree(RECIPE.parents[1] / "scripts", tmp_path / "scripts")
    log = tmp_path / "log"

    def run(*words: str, code: int = 0, **variables: str) -> tuple[list[str], Any]:
        log.write_text("")
        plain = {"PATH": os.environ["PATH"], "LOG": str(log), "PLATFORM": "cpu", "MODE": "reverse", "EXPERTS": EXPERTS}
        plain |= {"PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            ["bash", str(tmp_path / "recipe" / "ditto" / "distill.sh"), *words],
            cwd=tmp_path,
            env={**plain, "ACTOR_MODEL_PATH": "base", **variables},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == code, done.stderr
        return log.read_text().replace(f"{tmp_path}/", "").splitlines(), done

    return run


def test_the_experts_teach_their_tasks_and_all_models_are_compared(run: Run, tmp_path: Path) -> None:
    model(tmp_path / "outputs/distilled/student", b"of MODE=forward")
    said, done = run("judge.model=j", "policy.max_output_tokens=9", RL_ARGS="trainer.total_training_steps=7")
    assert said == [
        "run_rl.sh hitom,sotopia algorithm.objective=on_policy_distillation "
        "+algorithm.distill.teachers.hitom='outputs/a' +algorithm.distill.teachers.sotopia='outputs/b' "
        "data.mixture.rows_per_task=1024 trainer.val_before_train=false trainer.test_freq=-1 judge.model=j "
        "trainer.total_training_steps=7",
        "ACTOR_MODEL_PATH=base",
        "EXPERIMENT_NAME=student-reverse",
        "TRAIN_FILES=a.parquet b.parquet",
        "VAL_FILES=",
        "recipe/ditto/eval.sh local --model=base --model=outputs/a --model=outputs/b "
        "--model=outputs/distilled/student --model=outputs/distilled/student-reverse "
        "judge.model=j policy.max_output_tokens=9",
        "ACTOR_MODEL_PATH=base",
        "EXPERIMENT_NAME=eval",
        "TASKS=hitom sotopia",
    ]
    assert done.stdout.endswith("the table\n")


def test_a_student_is_trained_once_and_never_stands_for_another(run: Run, tmp_path: Path) -> None:
    run()
    said, done = run()
    assert said == [] and done.stdout.endswith("the table\n")  # nor is anything evaluated again
    said, done = run(RL_ARGS="trainer.total_training_steps=8")
    assert said[0].startswith("run_rl.sh") and "runs again: training has changed" in done.stdout
    write_weights(tmp_path / "outputs" / "a" / "model.safetensors", b"trained on")  # another expert of the same name
    said, done = run(RL_ARGS="trainer.total_training_steps=8")
    assert said[0].startswith("run_rl.sh") and "runs again: model outputs/a has changed" in done.stdout
    write(["sotopia"], 3, tmp_path / "b.parquet")
    said, done = run(RL_ARGS="trainer.total_training_steps=8")
    assert said[0].startswith("run_rl.sh") and "runs again: rows of sotopia:b has changed" in done.stdout
    assert len(list((tmp_path / "outputs/distilled/replaced").glob("*-student-reverse"))) == 3


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"EXPERTS": "hitom=endpoint:m@http://h/v1"}, "an endpoint cannot score"),
        ({"EXPERTS": "hitom=outputs/a hitom=outputs/b"}, "two experts for hitom"),
        ({"EXPERTS": "hitom:a.parquet=outputs/a sotopia=outputs/b"}, "a file for each task"),
        ({"EXPERTS": "outputs/a"}, "not of the form TASK=EXPERT"),
        ({"KEEP_ARGS": "--margin 1"}, "KEEP_ARGS belongs to MODE=forward"),
        ({"MODE": "backward"}, "use forward or reverse"),
    ],
)
def test_what_it_cannot_do_is_said_before_anything_starts(run: Run, variables: dict[str, str], says: str) -> None:
    said, done = run(code=2, **variables)
    assert says in done.stderr and not said
