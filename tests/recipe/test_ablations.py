"""recipe/ditto/ablations.sh: which runs are trained, what is drawn, what is refused. The trainings are stand-ins."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A run that ends as the folder `ends` says: with a line of its log and a code.
TRAINS = """#!/usr/bin/env bash
[ -z "${DRY_RUN:-}" ] || { echo "the plan of $*"; [[ "$*" != *objective=nope* ]] || exit 2; exit; }
echo "$EXPERIMENT_NAME $*" >>"$LOG"
trap 'echo saved; exit 143' TERM
if [ -e "ends/$EXPERIMENT_NAME" ]; then source "ends/$EXPERIMENT_NAME"; fi
"""
# What scripts/env asks an interpreter, or the figures.
PYTHON = '#!/usr/bin/env bash\ncase $1 in -) exit 0 ;; -c) echo "$0"; exit ;; esac\necho "$*" >>"$LOG"\n'
FOUR = ["ditto-seed1", "grpo-seed1", "ditto-seed2", "grpo-seed2"]


class Ablation:
    """The script beside stand-ins for run_rl.sh and Python."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        recipe = folder / "recipe" / "ditto"
        recipe.mkdir(parents=True)
        (folder / "ends").mkdir()
        shutil.copy(ROOT / "recipe/ditto/ablations.sh", recipe)
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        for path, text in ((recipe / "run_rl.sh", TRAINS), (folder / "python", PYTHON)):
            path.write_text(text)
            path.chmod(0o755)

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        self.log.write_text("")
        plain = {"PATH": os.environ["PATH"], "LOG": str(self.log), "PLATFORM": "cpu", "EXPERIMENT_NAME": "abl"}
        plain |= {"PYTHON": str(self.folder / "python"), "OBJECTIVES": "ditto grpo", "SEEDS": "1 2", **variables}
        command = ["bash", str(self.folder / "recipe/ditto/ablations.sh"), "hitom", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self.folder, env=plain, text=True, **pipes)

    def run(self, *words: str, code: int = 0, **variables: str) -> tuple[list[str], str]:
        """The lines of the log (a run for each training, the words of the figures), and what was printed."""
        process = self.start(*words, **variables)
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == code, printed
        return self.log.read_text().splitlines(), printed


@pytest.fixture
def ablation(tmp_path: Path) -> Ablation:
    return Ablation(tmp_path)


def test_runs_follow_one_another_and_only_what_is_missing_is_trained_again(ablation: Ablation) -> None:
    (ablation.folder / "ends/grpo-seed1").write_text("echo the last words; exit 1")
    (ablation.folder / "ends/ditto-seed2").write_text("echo 'Step 3: $5 of judge.budget_usd=$5.00 is spent'; exit 0")
    said, printed = ablation.run("trainer.total_training_steps=4", code=1)
    assert [line.split()[0] for line in said[:-1]] == FOUR
    for line in said[:-1]:
        seed = line.split()[0][-1]
        assert line.count(f"seed={seed}") == 4 and "hitom trainer.total_training_steps=4 algorithm.objective=" in line
    drawn = "-m soul figures --out outputs/abl/figures --runs"
    assert said[-1] == f"{drawn} ditto=outputs/abl/ditto-seed1 grpo=outputs/abl/grpo-seed2"
    assert "grpo-seed1 ended with code 1" in printed and "the last words" in printed
    assert "2 runs failed: grpo-seed1 ditto-seed2." in printed

    shutil.rmtree(ablation.folder / "ends")
    said, _ = ablation.run("trainer.total_training_steps=4", "trainer.logger=[console]")  # it changes no result
    assert [line.split()[0] for line in said[:-1]] == ["grpo-seed1", "ditto-seed2"]
    assert said[-1] == f"{drawn} ditto=outputs/abl/ditto-seed1,outputs/abl/ditto-seed2 " + (
        "grpo=outputs/abl/grpo-seed1,outputs/abl/grpo-seed2"
    )


def test_other_settings_rows_and_judges_are_refused_before_anything_starts(ablation: Ablation) -> None:
    ablation.run()
    for words, variables in (
        (["actor_rollout_ref.actor.optim.lr=1e-3"], {}),
        ([], {"JUDGE_MODEL_NAME": "another-judge"}),
        ([], {"TRAIN_FILES": "other.parquet"}),
        (["data.seed=3"], {}),
        ([], {"SEEDS": "one"}),
        ([], {"OBJECTIVES": "ditto nope"}),
    ):
        assert ablation.run(*words, code=2, **variables)[0] == []
    said, printed = ablation.run(DRY_RUN="1", EXPERIMENT_NAME="other")
    assert said == [] and printed.count("the plan of") == 1 and not (ablation.folder / "outputs/other").exists()


def test_a_signal_is_passed_on_and_waited_for(ablation: Ablation) -> None:
    (ablation.folder / "ends/ditto-seed1").write_text("touch ready; while :; do sleep 0.05; done")
    process = ablation.start()
    while not (ablation.folder / "ready").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and "Run the same command to continue" in printed
    assert [line.split()[0] for line in ablation.log.read_text().splitlines()] == ["ditto-seed1"]
    assert (ablation.folder / "outputs/abl/logs/ditto-seed1.log").read_text().endswith("saved\n")
