"""recipe/ditto/distill.sh, forward and reverse: what each step gets, and no training twice on the same inputs.

The steps themselves are stand-ins; that sampling and evaluation ask nothing twice is tested where they are.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ditto.launching.variables import names_in

RECIPE = Path(__file__).resolve().parents[3] / "recipe" / "ditto"
SAYS = (
    'echo "$0 $*" >>"$LOG"\n'
    'env | grep -E "^(TRAIN_FILES|VAL_FILES|ACTOR_MODEL_PATH|TASKS|LIMIT|EXPERIMENT_NAME)=" | sort >>"$LOG"\n'
)
# What scripts/env asks an interpreter: whether it has the training stack, and its name.
HAS_STACK = 'case $1 in -) exit 0 ;; -c) echo "$0"; exit ;; esac\n'
TRAINS = 'mkdir -p "$OUTPUT_DIR/$EXPERIMENT_NAME"; touch "$OUTPUT_DIR/$EXPERIMENT_NAME/config.json"'
MAKES = {
    "python": '[[ "$*" = *--dry-run* ]] || { mkdir -p "$4"; echo "$6" >"$4/train.parquet"; touch "$4/val.parquet"; }',
    "run_sft.sh": TRAINS,
    "run_rl.sh": TRAINS,
    "recipe/ditto/eval.sh": '[ -n "${DRY_RUN:-}" ] || echo "the table" >"$OUTPUT_DIR/$EXPERIMENT_NAME-models.md"',
}
EXPERTS = (
    "hitom=outputs/a sotopia:mine.parquet=outputs/b coser=outputs/a coser:other.parquet=endpoint:m@http://h/v1#KEY"
)
REVERSE = {"MODE": "reverse", "EXPERTS": "hitom:a.parquet=outputs/a sotopia:b.parquet=outputs/b"}
Run = Callable[..., tuple[list[str], Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs distill.sh beside stand-ins. Returns what they were given, and the process."""
    for name, makes in MAKES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{HAS_STACK if name == 'python' else ''}{SAYS}{makes}\n")
        path.chmod(0o755)
    for script in ("distill.sh", "distill_reverse.sh", "distill_step"):
        shutil.copy(RECIPE / script, tmp_path / "recipe" / "ditto")
    shutil.copytree(RECIPE.parents[1] / "scripts", tmp_path / "scripts")
    log = tmp_path / "log"

    def run(*words: str, code: int = 0, **variables: str) -> tuple[list[str], Any]:
        log.write_text("")
        plain = {"PATH": os.environ["PATH"], "LOG": str(log), "PLATFORM": "cpu", "PYTHON": str(tmp_path / "python")}
        command = ["bash", str(tmp_path / "recipe" / "ditto" / "distill.sh"), *words]
        environment = {**plain, "ACTOR_MODEL_PATH": "base", **variables}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        return log.read_text().replace(f"{tmp_path}/", "").splitlines(), done

    return run


def commands(said: list[str]) -> list[str]:
    """The programs that ran."""
    return [line.split()[0] for line in said if line.split()[0] in MAKES]


def test_data_student_and_evaluation_get_what_they_need(run: Run) -> None:
    words = ["judge.model=j", "policy.max_output_tokens=9"]
    said, done = run(*words, EXPERTS=EXPERTS, TP="2", KEEP_ARGS="--per-row 2", LIMIT="7")
    data = "outputs/distilled/data"
    assert said[0] == (
        f"python -m sft.distill --out {data} --n 8 --limit 1024 --tp 2 --not-in hitom --not-in sotopia --not-in coser "
        f"--weight 1 --per-row 2 {EXPERTS} judge.model=j policy.max_output_tokens=9"
    )
    train = next(i for i, line in enumerate(said) if line.startswith("run_sft.sh"))
    assert said[train + 1 :] == [
        *("ACTOR_MODEL_PATH=base", "EXPERIMENT_NAME=student", "LIMIT=7"),
        *(f"TRAIN_FILES='{data}/train.parquet'", f"VAL_FILES='{data}/val.parquet'"),
        "recipe/ditto/eval.sh local --model=base --model=outputs/a --model=outputs/b "
        "--model=outputs/distilled/student judge.model=j policy.max_output_tokens=9",
        *("ACTOR_MODEL_PATH=base", "EXPERIMENT_NAME=eval", "LIMIT=7", "TASKS=hitom sotopia coser"),
    ]
    assert done.stdout.endswith("the table\n")


def test_the_experts_teach_their_tasks_and_all_models_are_compared(run: Run, tmp_path: Path) -> None:
    (tmp_path / "outputs/distilled/student").mkdir(parents=True)
    (tmp_path / "outputs/distilled/student/config.json").touch()  # of MODE=forward
    words = ["judge.model=j", "policy.max_output_tokens=9"]
    said, done = run(*words, RL_ARGS="trainer.total_training_steps=7", **REVERSE)
    assert said == [
        "run_rl.sh hitom,sotopia algorithm.objective=on_policy_distillation "
        "+algorithm.distill.teachers.hitom='outputs/a' +algorithm.distill.teachers.sotopia='outputs/b' "
        "data.mixture.rows_per_task=1024 trainer.val_before_train=false trainer.test_freq=-1 judge.model=j "
        "trainer.total_training_steps=7",
        *("ACTOR_MODEL_PATH=base", "EXPERIMENT_NAME=student-reverse", "TRAIN_FILES=a.parquet b.parquet", "VAL_FILES="),
        "recipe/ditto/eval.sh local --model=base --model=outputs/a --model=outputs/b "
        "--model=outputs/distilled/student --model=outputs/distilled/student-reverse "
        "judge.model=j policy.max_output_tokens=9",
        *("ACTOR_MODEL_PATH=base", "EXPERIMENT_NAME=eval", "LIMIT=100", "TASKS=hitom sotopia"),
    ]
    assert done.stdout.endswith("the table\n")


@pytest.mark.parametrize(
    ("program", "given", "changed"),
    [
        ("run_sft.sh", {"EXPERTS": "hitom=outputs/a"}, {"SFT_ARGS": "optim.lr=2e-5"}),
        ("run_sft.sh", {"EXPERTS": "hitom=outputs/a"}, {"SAMPLES": "9"}),  # other data
        ("run_rl.sh", REVERSE, {"RL_ARGS": "trainer.total_training_steps=8"}),
    ],
)
def test_a_student_is_trained_once_on_the_same_inputs(
    run: Run, tmp_path: Path, program: str, given: dict[str, str], changed: dict[str, str]
) -> None:
    script = tmp_path / program
    content = script.read_text()
    script.write_text(content + "exit 3\n")
    said, done = run(code=3, **given)
    assert commands(said)[-1] == program and "move outputs/distilled/student" in done.stderr
    script.write_text(content)
    assert program in commands(run(**given)[0])  # a training run that failed goes on
    said, done = run(**given)
    assert program not in commands(said) and "is there" in done.stdout and done.stdout.endswith("the table\n")
    assert program in commands(run(**given, **changed)[0])


def test_a_dry_run_plans_sampling_and_evaluation_and_trains_nothing(run: Run) -> None:
    said, done = run("judge.model=j", EXPERTS="hitom=outputs/a", DRY_RUN="1", SUITE="paper", WEIGHTS="1 hitom=2")
    assert commands(said) == ["python", "recipe/ditto/eval.sh"]
    assert "--dry-run" in said[0] and "--weight hitom=2 --weight 1 " in said[0]
    # the student is not there yet
    assert "recipe/ditto/eval.sh local --model=base --model=outputs/a judge.model=j" in said
    assert "the same calls as that of the base" in done.stdout


def test_names_with_spaces_arrive_whole(run: Run) -> None:
    said, _ = run(EXPERTS="hitom=outputs/a", OUTPUT_DIR="my outputs", WEIGHTS="none")
    assert "--weight" not in said[0]
    (files,) = [line for line in said if line.startswith("TRAIN_FILES='my outputs")]
    assert names_in("TRAIN_FILES", dict([files.split("=", 1)])) == ["my outputs/distilled/data/train.parquet"]
    assert any("--model=base --model=outputs/a --model=my outputs/distilled/student" in line for line in said)
