"""Every benchmark that a page cites is started once: here, as a user starts it, or by the test that STARTED names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soul.samples import DATA
from tests.test_docs_paths import PAGES

ROOT = Path(__file__).resolve().parents[1]
# The words after `python -m benchmarks.`, each benchmark at its smallest -> a part of what it prints after measuring.
QUICK = {
    "throttle verdicts --calls 4 --only b --clients ours": "ours",
}
LONG = {  # torch and verl, or Ray, or processes of their own: 10 s and more
    "step --model MODEL --sequences 4 --prompt 8 --response 8 --rounds 1": "recompute",
    "sft --sizes 1M --rounds 1": "by-hand",
    "sft_data --rows 64": "together_2_s",
    "judge_actor --workers 2 --calls 100 --at-once 8": "200 calls",
    "gpu --parts head": "nothing is written",
    "faults shm FOLDER": "exit code 0, steps [1, 2, 3, 4, 5]",
    f"prefix_tree --model MODEL --data {DATA} --tasks fantom --drafts 2 --rounds 1": "goal",
}
# A benchmark that needs minutes of Ray and vLLM -> the test that starts it or its first unit.
STARTED = {
    "evaluate": "soul/test_benchmark_evaluate.py",
    "hacking": "test_hacking.py",
    "kills": "e2e/test_training.py",
    "learning": "test_learning.py",
    "parity": "test_parity.py",
}


def start(words: str) -> str:
    """Return the output of a benchmark that ends with 0, or with 1 after it has missed its goal."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("agents", "verl", "."))
    environment = {**os.environ, "PYTHONPATH": paths, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *f"benchmarks.{words}".split()]
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 or "Goal" in done.stdout, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [*QUICK, *(pytest.param(words, marks=pytest.mark.stress) for words in LONG)],
    ids=lambda words: words.split(" --")[0],
)
def test_a_benchmark_measures(words: str, tmp_path: Path) -> None:
    if str(DATA) in words and not DATA.exists():
        pytest.skip(f"the real records are not in {DATA}")
    if "FOLDER" in words and os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    if "MODEL" in words:
        from recipe.demo import tiny_model

        tiny_model.build(tmp_path, ["a corpus of a few words"] * 10)
    assert (QUICK | LONG)[words] in start(words.replace("MODEL", str(tmp_path)).replace("FOLDER", str(tmp_path)))


def test_every_benchmark_of_a_page_is_started() -> None:
    cited = {name for page in PAGES for name in re.findall(r"benchmarks\.(\w+)", page.read_text(encoding="utf-8"))}
    assert cited == {*STARTED, *(words.split()[0] for words in QUICK | LONG)}
    for name, test in STARTED.items():
        assert re.search(rf"benchmarks[. ](import )?.*{name}", (ROOT / "tests" / test).read_text(encoding="utf-8")), (
            name
        )
