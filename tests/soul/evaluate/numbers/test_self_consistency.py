"""What the majority of a row's samples answered, and what it earns.

Promise under test: the numbers are those of the definition, enumerated here; a tie is drawn fairly; who gave no answer
does not vote; failures are no votes and no numbers; the order of samples changes nothing.
"""

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul import examples
from soul.evaluate.numbers.results import summarise
from soul.evaluate.numbers.set_result import RowResult, vote_of
from soul.task_types import Episode, Metric
from tests.soul.evaluate.finished_samples import TOM, sample, shuffled

LETTERS = ("A", "B", "C")
BALLOTS = st.lists(st.one_of(st.none(), st.sampled_from(LETTERS)), min_size=1, max_size=9)
PAY = st.fixed_dictionaries({letter: st.integers(-3, 3).map(lambda n: n / 4) for letter in LETTERS})


def row(ballot, pay, worst=-1.0):
    return RowResult(0, 0, tuple(worst if vote is None else pay[vote] for vote in ballot), 0, tuple(ballot))


def enumerated(ballot, pay, worst):
    """Every way to break the tie, each as likely: by a draw of the order in which answers are looked at."""
    cast = [vote for vote in ballot if vote is not None]
    if not cast:
        return worst
    won = Fraction(0)
    orders = list(itertools.permutations(LETTERS))
    for order in orders:  # max keeps the first of equal counts
        won += Fraction(pay[max(order, key=cast.count)])
    return float(won / len(orders))


@given(BALLOTS, PAY)
def test_the_majority_earns_what_an_enumeration_says(ballot, pay):
    metric = Metric("m", low=-1.0)
    assert row(ballot, pay).majority(metric) == pytest.approx(enumerated(ballot, pay, -1.0), abs=1e-12)


def answers(number, of, *styles):
    """Samples of a row by players of these styles; None fails, "silent" says nothing."""
    example, found = examples.load(of), []
    for k, style in enumerate(styles):
        text = "I do not know." if style == "silent" else style and example.player(style, example.row(number))([])
        reward = None if style is None else float(style == "oracle")
        found.append(sample(reward, number, k, of=of, answer=text or "..."))
    return found


@pytest.mark.parametrize("of", [TOM, "paratomi", "lifechoices", "social_r1", "twinvoice", "alignx_pair", "socsci210"])
def test_a_set_is_scored_by_the_majority_of_each_row(of):
    lines = [
        *answers(0, of, "oracle", "oracle", "contrarian"),
        *answers(1, of, "contrarian", "oracle", "contrarian"),
        *answers(2, of, "oracle", "contrarian", "silent"),  # a tie of two
        *answers(3, of, "silent", "silent", "oracle"),  # one vote
        *answers(4, of, "silent", "silent", "silent"),
    ]
    found = summarise(shuffled(lines), [of]).sets[of]
    assert found.self_consistency == {3: (pytest.approx((1 + 0 + 0.5 + 1 + 0) / 5), 5)}
    assert found.to_json()["self_consistency"] == {"3": {"mean": pytest.approx(0.5), "rows": 5}}
    assert found.mean == pytest.approx((2 / 3 + 1 / 3 + 1 / 3 + 1 / 3 + 0) / 5)


def test_rows_with_a_failed_sample_are_not_in_it_and_that_is_said():
    lines = [*answers(0, TOM, "oracle", "oracle", None), *answers(1, TOM, "contrarian", "contrarian", "oracle")]
    found = summarise(lines, [TOM]).sets[TOM]
    assert found.self_consistency == {3: (0.0, 1)} and found.rows == 2
    assert summarise(answers(0, TOM, "oracle", None), [TOM]).sets[TOM].self_consistency == {}


VOTES = {
    "choice": {"(b)": "B", "B": "B", "Z": None, "I think B": None},
    "binary": {"No, nobody": "no", "YES.": "yes", "yes and no": None},
    "fact": {"The bakery.": "bakery", "bakery": "bakery"},
}


def test_wording_is_no_part_of_a_vote():
    example = examples.load("fantom")
    seen = set()
    for number in range(8):
        row = example.row(number)
        seen.add(row.kind)
        for text, vote in VOTES.get(row.kind, {}).items():
            episode = Episode({"policy": [{"role": "assistant", "content": f"Hm. <answer>{text}</answer>"}]})
            assert example.task.vote(row, episode) == vote, (row.kind, text)
        if row.kind == "list":
            gold = list(row.correct_answer)
            forms = (", ".join(gold), " and ".join(reversed(gold)).upper())
            episodes = [Episode({"p": [{"role": "assistant", "content": f"<answer>{f}</answer>"}]}) for f in forms]
            assert len({example.task.vote(row, episode) for episode in episodes}) == 1
    assert seen == {"choice", "list", "binary", "fact"}


def test_a_vote_is_read_from_a_line_of_the_journal_alone():
    example = examples.load(TOM)
    for number in range(5):
        text = example.random(example.row(number), random.Random(number))([])
        letter = text.removeprefix("<answer>").removesuffix("</answer>")
        line = sample(1.0, number, answer=text)
        assert vote_of(example.task, line) == letter
        assert vote_of(example.task, sample(None, number, answer=text)) is None
