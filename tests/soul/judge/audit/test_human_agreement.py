"""Judges that agree with people, that say the opposite, that fail: compared end to end."""

import asyncio
import io
import random
from collections import Counter

import pytest
from rich.console import Console

from soul.judge.audit.human_agreement import compare, table
from soul.judge.audit.human_labels import parse
from soul.testing import FakeOpenAI, Json, Refusal, fake_judge

WINS = {"real": 0.0, "tie": 0.5, "simulated": 1.0}


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr("soul.judge.audit.agreement_statistics.RESAMPLES", 50)


def made_up(n):
    """Pairs of conversations that are told apart by their texts."""
    return [
        ([{"role": "user", "content": f"real {i}"}], [{"role": "user", "content": f"simulated {i}"}]) for i in range(n)
    ]


def labelled(pairs, field, labels):
    records = zip(pairs, labels, strict=True)
    return [
        parse({"conversation_id": f"c-{i}", "real": real, "simulated": simulated, field: label}, "here")
        for i, ((real, simulated), label) in enumerate(records)
    ]


def scored(pairs, scores):
    return labelled(pairs, "human_score", scores)


def named(pairs, labels):
    return labelled(pairs, "human_label", labels)


def fingerprint(turns):
    return " ".join(turn["content"] for turn in turns)


class Oracle:
    """A judge that looks its answer up.

    Args:
        scores, takes: what to say of a pair, by its position in `pairs`; None refuses, a list goes repeat by repeat.
    """

    def __init__(self, pairs, scores=None, takes=None):
        self.pairs = {(fingerprint(real), fingerprint(simulated)): i for i, (real, simulated) in enumerate(pairs)}
        self.scores, self.takes = scores, takes
        self.asked = Counter()

    def __call__(self, request):
        data = request.data
        return self.score(data) if "real_conversation" in data else self.choice(data)

    def _answer(self, answers, pair):
        answer = answers[self.pairs[pair]]
        if not isinstance(answer, list):
            return answer
        self.asked[id(answer)] += 1
        return answer[self.asked[id(answer)] - 1]

    def score(self, data):
        pair = fingerprint(data["real_conversation"]), fingerprint(data["simulated_conversation"])
        score = self._answer(self.scores, pair)
        return Refusal() if score is None else Json({"reasoning": "?", "score": score})

    def choice(self, data):
        a, b = fingerprint(data["A"]), fingerprint(data["B"])
        slots = {"real": "A", "simulated": "B"} if (a, b) in self.pairs else {"real": "B", "simulated": "A"}
        pair = (a, b) if slots["real"] == "A" else (b, a)
        taken = self._answer(self.takes, pair)
        return Refusal() if taken is None else Json({"reasoning": "?", "human": slots.get(taken, "tie")})


def compared(oracle, labels, **options):
    fake = FakeOpenAI(oracle)
    found = asyncio.run(compare(fake_judge(fake, max_attempts=1, max_reasks=0), labels, **options))
    assert not fake.errors
    return found


def shown(agreement):
    console = Console(file=io.StringIO(), width=200)
    console.print(table(agreement))
    return console.file.getvalue()


def test_a_judge_that_agrees():
    pairs, rng = made_up(30), random.Random(0)
    people, labels = [rng.random() for _ in pairs], [rng.choice(list(WINS)) for _ in pairs]
    oracle = Oracle(pairs, people, labels)
    found = compared(oracle, scored(pairs, people) + named(pairs, labels))
    for metric in found.metrics.values():
        assert (metric.n, metric.left_out, metric.failures) == (30, 0, {})
        for name, estimate in metric.measures.items():
            best = 0 if name == "absolute_error" else 1
            assert (estimate.value, estimate.low, estimate.high) == pytest.approx((best, best, best))
        assert metric.judge_mean == pytest.approx(metric.human_mean)
    assert not {"accuracy", "kappa"} & found.metrics["gteval"].measures.keys()
    assert {"accuracy", "kappa"} <= found.metrics["pairwise"].measures.keys()
    assert found.metrics["pairwise"].human_mean == pytest.approx(sum(WINS[label] for label in labels) / 30)


def test_a_failure_is_counted_and_never_a_score():
    """The judge refuses where people gave extreme scores: any invented number in their place would show.

    Nine refusals in all, too few for the gateway to take the endpoint for broken.
    """
    pairs = made_up(20)
    people = [0.0] * 3 + [0.3, 0.4, 0.5, 0.6, 0.7, 0.5, 0.5] * 2 + [1.0] * 3
    says = [score if 0 < score < 1 else None for score in people]
    labels = ["real", "simulated"] * 10
    takes = [None if i < 3 else label for i, label in enumerate(labels)]
    found = compared(Oracle(pairs, says, takes), scored(pairs, people) + named(pairs, labels))
    assert (found.metrics["gteval"].n, found.metrics["gteval"].left_out, found.metrics["gteval"].failures) == (
        14,
        6,
        {"refusal": 6},
    )
    assert found.metrics["gteval"].measures["pearson"].value == pytest.approx(1)
    assert found.metrics["gteval"].measures["pearson"].n == 14
    assert found.metrics["gteval"].judge_mean == pytest.approx(0.5)
    assert (found.metrics["pairwise"].n, found.metrics["pairwise"].left_out, found.metrics["pairwise"].failures) == (
        17,
        3,
        {"refusal": 3},
    )
    assert found.metrics["pairwise"].measures["accuracy"].value == 1
    assert "refusal 6" in shown(found)


def test_repeats_are_averaged_and_a_missing_one_leaves_the_others():
    pairs = made_up(3)
    says = [[0.1, 0.3, None], [0.5, 0.5, 0.5], [None, 0.9, 0.7]]
    takes = [["real", "real", "simulated"], ["real", "simulated", None], ["tie", "simulated", "simulated"]]
    labels = scored(pairs, [0.2, 0.5, 0.8]) + named(pairs, ["real", "tie", "simulated"])
    found = compared(Oracle(pairs, says, takes), labels, repeats=3)
    assert found.metrics["gteval"].measures["pearson"].value == pytest.approx(1)  # the means are people's scores
    assert found.metrics["gteval"].judge_mean == pytest.approx(0.5)
    assert (found.metrics["gteval"].left_out, found.metrics["gteval"].failures) == (0, {"refusal": 2})
    # seven scores around 0.5, their squared distances from it sum to 0.4; two repeats differ by 0.2, each counted twice
    assert found.metrics["gteval"].judge_alpha == pytest.approx(1 - (4 * 0.2**2 / 7) / (2 * 7 * 0.4 / (7 * 6)))
    # most frequent: real; undecided, so a tie; simulated
    assert found.metrics["pairwise"].measures["accuracy"].value == 1
    assert found.metrics["pairwise"].judge_mean == pytest.approx((1 / 3 + 1 / 2 + 5 / 6) / 3)
    assert "among themselves" in shown(found)


def test_the_ceiling_is_the_agreement_of_the_annotators():
    """Hand-made: the interval alpha of (0, 0), (1, 1), (0.5, 1) and the nominal alpha of the three label pairs."""
    pairs = made_up(3)
    people = [[0, 0], [1, 1, None], [0.5, None, 1]]
    labels = [["real", "real"], ["simulated", "simulated"], ["tie", "simulated"]]
    oracle = Oracle(pairs, [0, 1, 0.75], ["real", "simulated", "tie"])
    found = compared(oracle, scored(pairs, people) + named(pairs, labels))
    # observed: one pair differs by 0.5, twice counted, of 6 ratings; expected: all 15 pairs of 0 0 1 1 0.5 1
    observed, expected = 2 * 0.25 / 6, 2 * (2 * 3 * 1 + 2 * 0.25 + 3 * 0.25) / (6 * 5)
    assert found.metrics["gteval"].human_alpha == pytest.approx(1 - observed / expected)
    # labels: real 2, simulated 3, tie 1; one of three pairs differs
    observed, expected = 2 / 6, 2 * (2 * 3 + 2 * 1 + 3 * 1) / (6 * 5)
    assert found.metrics["pairwise"].human_alpha == pytest.approx(1 - observed / expected)
    assert found.metrics["gteval"].measures["pearson"].value == pytest.approx(1)  # with the annotators' mean
    assert (
        found.metrics["pairwise"].measures["accuracy"].value == 1
    )  # two annotators who differ have not decided: a tie
