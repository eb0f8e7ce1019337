"""The first blocks of README and docs/sft.md, run as they are printed, with a model and a judge of this machine."""

import json

import pytest

from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI
from tests.e2e.printed_blocks import run_block

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_with_a_key_the_plan_of_the_papers_recipe_is_printed(tmp_path, real_model) -> None:
    """Here on a CPU and with a small model, so both commands are dry runs."""
    with FakeOpenAI(answer) as judge:
        variables = {"ACTOR_MODEL_PATH": str(real_model), "OPENAI_BASE_URL": judge.url, "DRY_RUN": "1"}
        printed = run_block("gpu", tmp_path, real_model, **variables)
    assert "6,000" in printed and not (tmp_path / "outputs/ditto-rl-hitom/metrics.jsonl").exists()


def test_an_evaluation_needs_an_address_only(tmp_path, real_model) -> None:
    with FakeOpenAI(answer) as fake:
        run_block("evaluate", tmp_path, real_model, OPENAI_BASE_URL=fake.url)
    (results,) = tmp_path.glob("outputs/*/results.json")
    assert set(json.loads(results.read_text())["sets"]) == {"hitom", "sotopia"}


def test_chats_in_the_form_of_sharegpt_need_one_command(tmp_path, real_model) -> None:
    turns = [{"from": "human", "value": "Did you eat?"}, {"from": "gpt", "value": "A cold sandwich on the stairs."}]
    (tmp_path / "chats.jsonl").write_text("\n".join([json.dumps({"conversations": turns})] * 40))
    printed = run_block("chats", tmp_path, real_model, "docs/sft.md", DRY_RUN="1")
    assert "100 steps of 16 rows" in printed
