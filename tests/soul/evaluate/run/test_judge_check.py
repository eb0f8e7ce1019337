"""A judge that gives points for nothing is found before the first sample, once, and its scores are marked."""

import json
import re
from dataclasses import replace

import pytest

from soul.evaluate import command as command_line
from soul.evaluate.outputs import main as report
from soul.evaluate.run.judge_check import FILE
from soul.examples.command import write_sets
from soul.examples.endpoint import answer
from soul.judge.audit import canaries
from soul.judge.audit.biases import REPLIES
from soul.judge.audit.canaries import CANARIES, SCENARIOS
from soul.testing import FakeOpenAI, Json, Text
from tests.soul.pages.exported import Exported


@pytest.fixture
def data(tmp_path):
    write_sets(("hitom", "sotopia"), 2, tmp_path / "data")
    return tmp_path / "data"


def grading(score_of):
    """An endpoint that grades canaries with `score_of(reply)`, and plays and judges everything else."""

    def reply(request):
        if not is_canary(request):
            return answer(request) if request.body["model"] != "m" else Text("<answer>A</answer>")
        text = request.messages[1]["content"]
        return Json(
            {"reason": "As I like.", "score": score_of(json.JSONDecoder().raw_decode(text, text.index("{"))[0])}
        )

    return reply


def is_canary(request):
    return request.messages[0]["content"].startswith("You grade replies")


def generous(data):
    return 10


def strict(data):
    return (
        9 if data["reply"] in {s.good for s in SCENARIOS} else 3 if data["reply"] in {s.weak for s in SCENARIOS} else 0
    )


def evaluate(fake, data, out, *words):
    where = [f"policy.base_url={fake.url}", f"judge.base_url={fake.url}", "judge.api_key_env=none"]
    where += ["policy.model=m", "policy.api_key_env=none", "judge.model=weak"]
    return command_line.main([*where, "--data", str(data), "--out", str(out), *words])


def canaries_sent(fake):
    return sum(map(is_canary, fake.requests))


def test_a_judge_that_gives_points_for_nothing_marks_its_scores_everywhere(data, tmp_path, capsys):
    with FakeOpenAI(grading(generous)) as fake:
        assert evaluate(fake, data, tmp_path, "sotopia", "hitom") == 0
        sent = canaries_sent(fake)
        assert len(CANARIES) / 2 < sent <= len(CANARIES) + 2 * len(SCENARIOS) + len(REPLIES)
        assert evaluate(fake, data, tmp_path, "sotopia", "--name", "again") == 0
        assert canaries_sent(fake) == sent + len(REPLIES), "the endpoint has been seen"
        assert evaluate(fake, data, tmp_path, "sotopia", "judge.temperature=0.5") == 0
        assert canaries_sent(fake) == 2 * sent + len(REPLIES), "another temperature is another judge"
    warning = "The judge weak cannot be trusted on replies that deserve nothing: fooled by"
    assert warning in " ".join(capsys.readouterr().out.split())
    for folder in tmp_path.glob("*-*/"):
        assert report([str(folder)]) == 0  # from the files alone
        table = (folder / "table.md").read_text()
        assert warning in table and re.search(r"\| sotopia \| [-\d.]+( \[.*\])? \? \* \|", table)
        assert not re.search(r"\| hitom \|[^|]*\?", table), "scored by rule"
        assert warning in json.dumps(Exported(folder / "report.html").overview())
        assert json.loads((folder / "results.json").read_text())["sets"]["sotopia"]["judge_problems"]["weak"]


PRICED = ("judge.price_in=100", "judge.price_out=100", "policy.price_in=0", "policy.price_out=0")


def printed(capsys):
    return " ".join(capsys.readouterr().out.split())


def content(folder, name):
    (path,) = folder.glob(f"*-*/{name}")
    return json.loads(path.read_text())


def test_the_calls_of_the_test_are_planned_and_billed_once(data, tmp_path, capsys):
    number = len(canaries.replies()) + len(REPLIES)
    calls = f"{number} calls before the first sample, $"
    with FakeOpenAI(grading(strict)) as fake:
        assert evaluate(fake, data, tmp_path, "sotopia", *PRICED, "--dry-run") == 0
        plan = printed(capsys)
        assert f"Test of the judge weak with known replies: {calls}" in plan and "│ judge test" in plan
        assert canaries_sent(fake) == 0 and not list(tmp_path.glob("*-*"))
        for unasked in (["hitom"], ["sotopia", "--no-preflight"]):
            assert evaluate(fake, data, tmp_path, *unasked, *PRICED, "--dry-run") == 0
            assert "judge test" not in printed(capsys)
        assert evaluate(fake, data, tmp_path, "sotopia", *PRICED) == 0
        assert canaries_sent(fake) == number
        ended = printed(capsys)
        assert evaluate(fake, data, tmp_path, "sotopia", *PRICED, "--dry-run") == 0
        assert "judge test" not in printed(capsys), "no sample is missing"
        assert evaluate(fake, data, tmp_path, "sotopia", "--n", "2", *PRICED, "--dry-run") == 0
        assert f"known replies: {len(REPLIES)} calls before" in printed(capsys), "the endpoint has been seen"
    usage, bill = content(tmp_path, FILE)["usage"], content(tmp_path, "results.json")
    assert usage["calls"] == number and usage["cost_usd"] > 0
    assert bill["judge_tests"]["usage"]["cost_usd"] == usage["cost_usd"]
    whole = usage["cost_usd"] + bill["sets"]["sotopia"]["usage"]["judges"]["cost_usd"]
    assert f"0 failed, ${whole:.3f}" in ended  # the line of progress
    assert (
        f"The test of its judges took {usage['calls']} calls, which no set counts: ${usage['cost_usd']:.2f}." in ended
    )
    (report_page,) = tmp_path.glob("*/report.html")
    assert ["policy and judges", f"${whole:.2f}"] in Exported(report_page).overview()["tiles"]


def test_a_judge_that_has_changed_since_its_first_grades_is_named_with_both_verdicts(data, tmp_path, capsys):
    fell = 0.0

    def reply(request):
        answer = grading(lambda data: strict(data) - fell * (strict(data) > 0))(request)
        return replace(answer, value={**answer.value, "reason": f"fell {fell:g}"}) if is_canary(request) else answer

    with FakeOpenAI(reply) as fake:
        for name, change, more in (("a", 0.0, ()), ("b", 0.0, ()), ("c", 1.5, ()), ("c", 0.0, ("--n", "2"))):
            fell = change
            capsys.readouterr()
            assert evaluate(fake, data, tmp_path, "sotopia", "--name", name, *more) == 0
            warned = "The judge weak grades the same 12 replies" in (shown := printed(capsys))
            assert warned is (name == "c"), "what was scored by the changed judge stays in the run"
    (folder,) = tmp_path.glob("c-*")
    (check,) = json.loads((folder / FILE).read_text())["checks"]
    mean = -1.5 * sum(grade[0] > 0 for grade in check["first"]["grades"]) / len(REPLIES)
    assert (
        f"{mean:+.2f}" in check["changed"]
        and '("fell 0"), and now gets' in check["changed"]
        and '("fell 1.5")' in shown
    )
    assert f"Warning: {check['changed']}" in (folder / "table.md").read_text()
    assert json.dumps(check["changed"])[1:-1] in json.dumps(Exported(folder / "report.html").overview())
