"""Judges with one known bias: the command finds that bias and no other, and a failed call is no score."""

import asyncio
import json

import pytest
from rich.console import Console

from soul.evaluate.outputs import write_outputs
from soul.evaluate.run.run_folder import EvaluationRun
from soul.judge.audit import biases, card
from soul.judge.audit.biases import REPLIES, family_warning, measure
from soul.testing import FakeOpenAI, Json, Refusal, fake_judge
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import sample
from tests.soul.pages.exported import Exported

WORTH = {text: 3.0 + place % 3 for place, (_, text) in enumerate(reversed(REPLIES))}  # weak 3, middling 4, good 5


def worth(text):
    """What the honest reply in this text deserves; known tricks alone fool the judge."""
    plain = text.replace("- ", "").replace("**", "").replace("\n", " ")
    return next((score for reply, score in WORTH.items() if plain.startswith(reply)), 9.0)


def judged_by(points=lambda text: 0.0, first=0.0, likes_a=False):
    """An endpoint that gives points for a text besides its worth, points for what comes first, or the win to A."""

    def answer(request):
        data, fields = request.data, list(request.body["response_format"]["json_schema"]["schema"]["properties"])
        if "ping" in data:
            return Json({"ready": True})
        if "A" in data:
            a, b = (worth(turns[-1]["content"]) + points(turns[-1]["content"]) for turns in (data["A"], data["B"]))
            return Json({"reasoning": "r", "human": "A" if likes_a or a > b else "B"})
        score = min(10.0, worth(data["reply"]) + points(data["reply"]))
        if "score" in fields:
            return Json({"reason": "r", "score": score})
        return Json({"reason": "r"} | {name: score + first * (place == 0) for place, name in enumerate(fields[1:])})

    return answer


LIKES = {
    "nothing": {},
    "length": {"points": lambda text: len(text.split()) / 25},
    "praise": {"points": lambda text: 2.0 * ("outstanding" in text)},
    "politeness": {"points": lambda text: 1.0 * ("forgive me" in text)},
    "form": {"points": lambda text: 1.0 * text.startswith("- **")},
    "repetition": {"points": lambda text: 1.5 * any(text.count(reply) > 1 for reply in WORTH)},
    "order of dimensions": {"first": 1.0},
    "position, for A": {"likes_a": True},
}


@pytest.mark.parametrize("bias", LIKES)
def test_a_judge_with_one_bias_shows_that_bias_and_no_other(bias):
    measured = asyncio.run(measure(fake_judge(judged_by(**LIKES[bias]))))
    assert [effect.name for effect in measured if effect.found] == ([bias] if bias != "nothing" else [])
    effects = {effect.name: effect for effect in measured}
    sizes = {"praise": 2.0, "politeness": 1.0, "form": 1.0, "repetition": 1.5, "order of dimensions": 1.0}
    for name, size in sizes.items():
        if bias != "length":
            assert effects[name].mean == pytest.approx(size if name == bias else 0.0), name
    assert effects["length"].mean == pytest.approx(40 / 25 if bias == "length" else 0.0)
    assert effects["position, for A"].mean == effects["position, flips"].mean == float(bias == "position, for A")
    assert all(effect.pairs == 12 and not effect.failures for effect in measured)
    assert effects["repeats, alpha"].mean == pytest.approx(1.0)


def test_a_failed_call_is_counted_and_its_pair_left_out():
    def answer(request):
        refused = "outstanding" in request.text and "40718" in request.text
        return Refusal() if refused else judged_by(**LIKES["praise"])(request)

    judge = fake_judge(answer, max_reasks=0)
    measured = asyncio.run(measure(judge))
    praise = next(effect for effect in measured if effect.name == "praise")
    assert (praise.pairs, praise.failures, praise.mean, praise.found) == (9, {"refusal": 3}, 2.0, True)
    assert [effect.name for effect in measured if effect.failures] == ["praise"]
    assert judge.usage.failures == {"refusal": 3}
    written = json.loads(json.dumps(card.make(judge, measured, [], None)))
    assert {effect["name"]: effect["failures"] for effect in written["biases"]}["praise"] == {"refusal": 3}
    nothing = asyncio.run(measure(fake_judge(Refusal(), max_reasks=0)))
    assert all(effect.mean is effect.p is None and not effect.found for effect in nothing)


def test_the_card_holds_every_test_and_the_report_of_an_evaluation_shows_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("soul.judge.audit.card.terminal", lambda: Console(width=200))
    run = finished_run(tmp_path / "eval-0", [sample(0.5, n, of="hitom", task="hitom") for n in range(2)])
    agreement, pearson = tmp_path / "agreement.json", {"value": 0.5, "low": 0.25, "high": 0.75, "n": 9}
    measures = {"measures": {"pearson": pearson, "kendall": pearson | {"value": 0.4}}, "people": {"pearson": pearson}}
    agreement.write_text(json.dumps({"metrics": {"goal": measures, "secret": measures}, "repeats": 1}))
    with FakeOpenAI(judged_by(**LIKES["praise"])) as fake:
        words = [f"judge.base_url={fake.url}", "judge.api_key_env=none", "judge.model=qwen/b", "policy.model=Qwen3"]
        assert biases.main(words) == 0
        assert "+2.00 *" in capsys.readouterr().out
        words += ["judge.price_in=1", "judge.price_out=1"]
        card.main([*words, "--out", str(run.folder), "--agreement", str(agreement)])
    content = json.loads((run.folder / "judge_card.qwen-b.json").read_text())
    summary, usage, shown = content["summary"], content["usage"], capsys.readouterr().out
    assert summary["biases"] == "praise +2.00"
    between = "+0.50 [+0.25, +0.75]"
    assert summary["agreement with people"] == f"goal pearson {between}, secret pearson {between}"
    assert summary["known tricks"] == "; ".join(content["canaries"]["problems"]) != ""
    assert summary["calls"].startswith(f"0 of {usage['calls']} failed; ${usage['cost_usd']:.2f}")
    assert [effect["name"] for effect in content["biases"] if effect["found"]] == ["praise"]
    for effect in content["biases"]:
        row = next(line for line in shown.splitlines() if f"│ {effect['name']} " in line)
        assert f"{effect['mean']:+.2f}" in row and f"│ {effect['pairs']} │" in " ".join(row.split())
    assert "of one family" in " ".join(shown.split())
    write_outputs(EvaluationRun.load(run.folder))
    for text in ((run.folder / "table.md").read_text(), json.dumps(Exported(run.folder / "report.html").overview())):
        assert "Card of qwen/b at" in text and summary["biases"] in text and f"secret pearson {between}" in text
    (run.folder / "judge_card.qwen-b.json").write_text("{}")
    with pytest.raises(card.BadCard, match=r"judge_card.qwen-b.json is not the card of a judge"):
        write_outputs(EvaluationRun.load(run.folder))


@pytest.mark.parametrize(
    ("judge", "policy", "same"),
    [
        ("gpt-5-nano", "openai/gpt-oss-20b", True),
        ("o3-mini", "gpt-5.4", True),
        ("Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", True),
        ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B", False),
        ("mine", "mine", True),
        ("mine", "outputs/ditto-1/global_step_50", False),
    ],
)
def test_the_family_is_read_from_the_names(judge, policy, same):
    assert (family_warning(judge, policy) is not None) is same
