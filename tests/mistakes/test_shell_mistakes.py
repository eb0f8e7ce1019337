"""Mistakes of the shell around a command: each is one paragraph with what to do, never advice about something else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOUL = f"{sys.executable} -m soul"
# What is typed in a shell -> (what the user reads, exit code).
LINES: dict[str, tuple[str, int]] = {
    "sh {root}/run_rl.sh hitomm": ("Did you mean 'hitom'", 2),
    "ln -s {root}/run_rl.sh link; bash link hitomm": ("Did you mean 'hitom'", 2),
    "source {root}/run_sft.sh; exit $?": ("Run it instead of sourcing it: bash {root}/run_sft.sh", 2),
    "TASKS=hitom,coser bash {root}/run_rl.sh": ("TASKS=hitom,coser names evaluation sets", 2),
    "TASK=hitom bash {root}/recipe/ditto/eval.sh api policy.model=m": ("What to evaluate: TASKS=hitom", 2),
    "TASKS=paper OPENAI_AGENT_MODEL=m bash {root}/recipe/ditto/eval.sh api": ("(SUITE=paper)", 2),
    "{soul} --help > /dev/full": ("Standard output takes no more", 1),
    "{soul} tasks > /dev/full": ("Standard output takes no more", 1),
    "ulimit -f 0; {soul} examples hitom --out x.parquet": ("`ulimit -f` of this shell allows 0 KiB. Raise it", 1),
}


@pytest.mark.parametrize("line", LINES)
def test_a_mistake_of_the_shell_is_one_paragraph(line: str, tmp_path: Path) -> None:
    said, code = LINES[line]
    typed, expected = (text.replace("{root}", str(ROOT)).replace("{soul}", SOUL) for text in (line, said))
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "PLATFORM": "cpu", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", typed], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, expected in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr
