"""The first blocks of README and docs/sft.md, run as they are printed, with a model and a judge of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI
from tests.e2e.run import ROOT

pytestmark = pytest.mark.e2e


def run(block: str, folder: Path, model: Path, page: str = "README.md", **environment: str) -> str:
    """Run a block of a page in `folder`; returns what it printed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (commands,) = re.findall(rf"<!-- block: {block} -->\n```bash\n(.*?)```", text, re.DOTALL)
    commands = re.sub(r"HuggingFaceTB/SmolLM2-135M-Instruct|Qwen/Qwen3-0.6B", str(model), commands)
    commands = re.sub(r"bash (recipe/|run_)", rf"bash {ROOT}/\1", commands)
    commands = commands.replace("export OPENAI_API_KEY=...", "export OPENAI_API_KEY=none")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "JUDGE_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "PLATFORM": "cpu", "COLUMNS": "100", "HF_HUB_OFFLINE": "1"}
    command = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(
        command, cwd=folder, env={**kept, **own, **environment}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def test_without_gpu_key_and_data_a_real_model_is_trained_evaluated_and_shown(tmp_path, real_model) -> None:
    shown = run("nothing", tmp_path, real_model)
    steps = [json.loads(line) for line in (tmp_path / "outputs/ditto-rl-hitom/metrics.jsonl").read_text().splitlines()]
    assert max(step["step"] for step in steps) == 2
    assert (tmp_path / "outputs/ditto-rl-hitom/global_step_2/config.json").is_file()
    assert "ditto-rl-hitom" in shown and len(list((tmp_path / "outputs").glob("*/results.json"))) == 1


def test_with_a_key_the_plan_of_the_papers_recipe_is_printed(tmp_path, real_model) -> None:
    """Here on a CPU and with a small model, so both commands are dry runs."""
    with FakeOpenAI(answer) as judge:
        variables = {"ACTOR_MODEL_PATH": str(real_model), "OPENAI_BASE_URL": judge.url, "DRY_RUN": "1"}
        printed = run("gpu", tmp_path, real_model, **variables)
    assert "6,000" in printed and not (tmp_path / "outputs/ditto-rl-hitom/metrics.jsonl").exists()


def test_an_evaluation_needs_an_address_only(tmp_path, real_model) -> None:
    with FakeOpenAI(answer) as fake:
        run("evaluate", tmp_path, real_model, OPENAI_BASE_URL=fake.url)
    (results,) = tmp_path.glob("outputs/*/results.json")
    assert set(json.loads(results.read_text())["sets"]) == {"hitom", "sotopia"}


def test_chats_in_the_form_of_sharegpt_need_one_command(tmp_path, real_model) -> None:
    turns = [{"from": "human", "value": "Did you eat?"}, {"from": "gpt", "value": "A cold sandwich on the stairs."}]
    (tmp_path / "chats.jsonl").write_text("\n".join([json.dumps({"conversations": turns})] * 40))
    printed = run("chats", tmp_path, real_model, "docs/sft.md", DRY_RUN="1")
    assert "100 steps of 16 rows" in printed
