"""Every benchmark that a page cites is started once: here, as a user starts it, or by the test that STARTED names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import psutil
import pytest

from benchmarks import startup
from tests.soul.samples import DATA
from tests.test_docs_paths import PAGES

ROOT = Path(__file__).resolve().parents[1]
# The words after `python -m benchmarks.`, each benchmark at its smallest -> a part of what it prints after measuring.
QUICK = {
    "cluster --gpus 8": "GPUs",
    "throttle verdicts --calls 4 --only b --clients ours": "ours",
}
LONG = {  # torch and verl, or Ray, or processes of their own: 10 s and more
    "step update --model MODEL --sequences 4 --prompt 8 --response 8 --rounds 1": "ditto",
    "step old_logp --model MODEL --sequences 4 --prompt 8 --response 8 --rounds 1": "recompute",
    "sft --sizes 1M --rounds 1": "by-hand",
    "sft_data --rows 64": "together_2_s",
    "driver --sessions 8 --turns 2 --tokens 4": "Goal:",
    "cpu_sampling --answers 2 --tokens 4 --rounds 1": "vLLM's seconds",
    "gpu --parts head": "nothing is written",
    f"prefix_tree --model MODEL --data {DATA} --tasks fantom --drafts 2 --rounds 1": "goal",
}
# A benchmark that needs TRL, or minutes of Ray and vLLM -> the test that starts it or its first unit.
STARTED = {
    "evaluate": "soul/test_benchmark_evaluate.py",
    "grpo_vs_trl": "test_benchmarks_start.py",
    "kills": "e2e/test_training.py",
    "learning": "test_one_process.py",
    "judge_actor": "ditto/judging/test_benchmark_judge_actor.py",
    "sft_kills": "e2e/test_sft_stops.py",
    "parity": "test_parity.py",
    "startup": "test_benchmarks_start.py",
}


def start(words: str) -> str:
    """Return the output of a benchmark that ends with 0, or with 1 after it has missed its goal."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("agents", "verl", "."))
    environment = {**os.environ, "PYTHONPATH": paths, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *f"benchmarks.{words}".split()]
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=300
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
    if "MODEL" in words:
        from recipe.demo import tiny_model

        tiny_model.build(tmp_path, ["a corpus of a few words"] * 10)
    assert (QUICK | LONG)[words] in start(words.replace("MODEL", str(tmp_path)))


def test_every_benchmark_of_a_page_is_started() -> None:
    cited = {name for page in PAGES for name in re.findall(r"benchmarks\.(\w+)", page.read_text(encoding="utf-8"))}
    assert cited == {*STARTED, *(words.split()[0] for words in QUICK | LONG)}
    for name, test in STARTED.items():
        assert re.search(rf"benchmarks[. ](import )?.*{name}", (ROOT / "tests" / test).read_text(encoding="utf-8")), (
            name
        )


@pytest.mark.stress
def test_the_launched_side_of_the_comparison_with_trl_measures_every_step(real_model: Path, tmp_path: Path) -> None:
    from benchmarks import grpo_vs_trl
    from soul.examples.__main__ import write

    write(["hitom"], 2, tmp_path / "rows.parquet")
    args = Namespace(prompts=1, group=2, response=8, steps=1, prompt_length=1024)
    phases = grpo_vs_trl.launch(tmp_path / "run", real_model, tmp_path / "rows.parquet", "ditto", args)
    assert {name: len(values) for name, values in phases.items()} == dict.fromkeys(grpo_vs_trl.PHASES, 1)
    assert phases["step"][0] == pytest.approx(phases["sampling"][0] + phases["update"][0])


def test_the_start_up_is_measured_process_by_process() -> None:
    seen: dict[tuple[int, float], tuple[str, float]] = {}
    startup.cpu_seconds(psutil.Process(), seen)
    assert all(name and seconds >= 0 for name, seconds in seen.values()) and os.getpid() in {pid for pid, _ in seen}
