"""recipe/ditto/distill.sh: three steps, each with what it needs, and none twice. The steps themselves are stand-ins."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "recipe" / "ditto" / "distill.sh"
SAYS = (
    'echo "$0 $*" >>"$LOG"\n'
    'env | grep -E "^(DATA_DIR|TRAIN_FILES|VAL_FILES|ACTOR_MODEL_PATH|TASKS|LIMIT)=" | sort >>"$LOG"\n'
)
MAKES = {
    "python": 'mkdir -p "$4"; touch "$4/train.parquet" "$4/val.parquet"',
    "run_sft.sh": 'mkdir -p "$OUTPUT_DIR/$EXPERIMENT_NAME"',
    "recipe/ditto/eval.sh": 'echo "the table" >"$OUTPUT_DIR/$EXPERIMENT_NAME-models.md"',
}


@pytest.fixture
def run(tmp_path):
    for name, makes in MAKES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{SAYS}{makes}\n")
        path.chmod(0o755)
    shutil.copy(SCRIPT, tmp_path / "recipe" / "ditto")
    shutil.copytree(SCRIPT.parents[2] / "scripts", tmp_path / "scripts")
    log = tmp_path / "log"

    def run(*words, code=0, **variables):
        log.write_text("")
        plain = {"PATH": os.environ["PATH"], "LOG": str(log), "PLATFORM": "cpu", "PYTHON": str(tmp_path / "python")}
        command = ["bash", str(tmp_path / "recipe" / "ditto" / "distill.sh"), *words]
        done = subprocess.run(
            command, cwd=tmp_path, env={**plain, **variables}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stderr
        return log.read_text().replace(f"{tmp_path}/", "").splitlines(), done

    return run


EXPERTS = "hitom=outputs/a sotopia:mine.parquet=outputs/b coser=outputs/a coser=endpoint:m@http://h/v1#KEY"


def test_experts_data_student_evaluation(run):
    words = ["judge.model=j", "policy.max_output_tokens=9"]
    said, done = run(*words, EXPERTS=EXPERTS, ACTOR_MODEL_PATH="base", TP="2", KEEP_ARGS="--margin 0.1", LIMIT="7")
    data = "outputs/distilled/data"
    assert said[0] == (
        f"python -m sft.distill --out {data} --n 8 --limit 1024 --tp 2 --not-in hitom --not-in sotopia --not-in coser "
        f"--margin 0.1 {EXPERTS} judge.model=j policy.max_output_tokens=9"
    )
    train = next(i for i, line in enumerate(said) if line.startswith("run_sft.sh"))
    assert said[train + 1 : train + 5] == [
        "ACTOR_MODEL_PATH=base",
        f"DATA_DIR={data}",
        "LIMIT=7",
        f"TRAIN_FILES={data}/train.parquet",
    ]
    assert said[train + 5] == f"VAL_FILES={data}/val.parquet"
    evaluate = next(i for i, line in enumerate(said) if "eval.sh" in line)
    assert said[evaluate] == "recipe/ditto/eval.sh local judge.model=j policy.max_output_tokens=9"
    assert said[evaluate + 1 :] == [
        "ACTOR_MODEL_PATH=base outputs/a outputs/b outputs/distilled/student",
        "LIMIT=7",
        "TASKS=hitom sotopia coser",
    ]
    assert done.stdout.endswith("the table\n")


def test_what_is_there_is_not_done_again(run, tmp_path):
    assert len([line for line in run(EXPERTS=EXPERTS)[0] if ".sh" in line or "python" in line]) == 3
    said, done = run(EXPERTS=EXPERTS)
    assert said == [] and done.stdout.count("there is") == 3
    (tmp_path / "outputs/distilled/student/trained").unlink()
    (tmp_path / "outputs/distilled/eval-models.md").unlink()
    said, _ = run(EXPERTS=EXPERTS)
    assert [line.split()[0] for line in said if ".sh" in line] == ["run_sft.sh", "recipe/ditto/eval.sh"]


def test_a_step_that_fails_ends_it_and_is_done_again(run, tmp_path):
    train = tmp_path / "run_sft.sh"
    whole = train.read_text()
    train.write_text(whole + "exit 3\n")
    said, _ = run(EXPERTS=EXPERTS, code=3)
    assert not any("eval.sh" in line for line in said)
    train.write_text(whole)
    said, _ = run(EXPERTS=EXPERTS)
    assert [line.split()[0] for line in said if ".sh" in line] == ["run_sft.sh", "recipe/ditto/eval.sh"]


def test_a_dry_run_plans_sampling_and_evaluation_and_trains_nothing(run, tmp_path):
    said, done = run("judge.model=j", EXPERTS="hitom=outputs/a", ACTOR_MODEL_PATH="base", DRY_RUN="1", SUITE="paper")
    commands = [line for line in said if "=" not in line.split()[0]]
    assert [line.split()[0] for line in commands] == ["python", "recipe/ditto/eval.sh"]
    assert "--dry-run" in commands[0] and commands[1] == "recipe/ditto/eval.sh local judge.model=j"
    assert "ACTOR_MODEL_PATH=base outputs/a" in said  # the student is not there yet
    assert "student, as the base" in done.stdout


def test_without_experts_it_says_what_it_needs(run):
    _, done = run(code=2)
    assert 'name the experts: EXPERTS="TASK=EXPERT ..."' in done.stderr
