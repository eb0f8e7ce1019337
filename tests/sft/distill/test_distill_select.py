"""The selection held against a slow, plain one, on made samples of all kinds."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sft.distill.dataset import group_names, held_back
from sft.distill.sample import ExpertSample, Fingerprints
from sft.distill.select import Rule, choose
from soul.task_types import GroupKey, Metric

UP, DOWN = Metric("up"), Metric("down", low=0.0, high=1.0, higher_is_better=False)
HEADLINES = {"up": UP, "down": DOWN}
REWARDS = (0.0, 0.25, 0.5, 0.75, 1.0)
PROBLEMS = (None, None, None, "failed: timeout", "contentless", "cut off")


class Journal:
    name = "expert"


JOURNAL = Journal()


def made(number, task, row, reward=1.0, problem=None, seats=(("policy", "text"),), heard=""):
    found = tuple(Fingerprints(seat, f"{row}:{seat}:{text}:{heard}", text) for seat, text in seats)
    failed = problem is not None and problem.startswith("failed")
    value = None if failed else reward
    return ExpertSample(JOURNAL, number, task, task, row, 0, number, value, problem, found)


@st.composite
def journals(draw):
    count = draw(st.integers(1, 14))
    samples = []
    for number in range(count):
        task = draw(st.sampled_from(["up", "down"]))
        names = draw(st.sampled_from([("policy",), ("anna", "ben")]))
        seats = tuple((name, draw(st.sampled_from(["yes", "no", "well"]))) for name in names)
        row = f"{task}{draw(st.integers(0, 2))}"
        reward, problem = draw(st.sampled_from(REWARDS)), draw(st.sampled_from(PROBLEMS))
        heard = draw(st.sampled_from(["much", "little"]))
        samples.append(made(number, task, row, reward, problem, seats, heard))
    return samples


rules = st.builds(
    Rule,
    threshold=st.sampled_from([{}, {"": 0.5}, {"": 0.25}]),
    per_row=st.sampled_from([None, 1, 2]),
    seed=st.integers(0, 3),
)


def good(sample, samples, rule):
    """Whether nothing but the number of samples can keep this one out, said without signs and tolerances."""
    if sample.problem or sample.reward is None:
        return False
    better = (lambda a, b: a >= b) if sample.task == "up" else (lambda a, b: a <= b)
    if sample.reward == (0.0 if sample.task == "up" else 1.0):
        return False
    if rule.threshold:
        return better(sample.reward, rule.threshold[""])
    of_row = [s.reward for s in samples if s.row == sample.row and s.reward is not None]
    mean = sum(of_row) / len(of_row)
    return sample.reward >= mean - 1e-6 if sample.task == "up" else sample.reward <= mean + 1e-6


@settings(max_examples=150, deadline=None)
@given(journals(), rules, st.randoms())
def test_against_a_plain_selection(samples, rule, lot):
    found = choose(samples, rule, HEADLINES)
    fate = dict(zip((s.sample for s in samples), found.fates, strict=True))
    assert len(found.fates) == len(samples) and [s for s, _ in found.kept] == sorted(
        (s for s in samples if fate[s.sample] == "kept"), key=lambda s: s.key
    )
    for row in {s.row for s in samples}:
        able = [s for s in samples if s.row == row and good(s, samples, rule)]
        kept = [(s, seats) for s, seats in found.kept if s.row == row]
        assert {s.sample for s, _ in kept} <= {s.sample for s in able}
        worth = [s.reward if s.task == "up" else -s.reward for s in able]
        if able:  # the best of them is among the kept, and none better was passed over for a worse one but duplicates
            assert max(worth) in [s.reward if s.task == "up" else -s.reward for s, _ in kept]
        assert rule.per_row is None or len(kept) <= rule.per_row
        texts = [(p.seat, p.trained) for _, seats in kept for p in seats]
        assert len(texts) == len(set(texts)), "two kept conversations say the same to the same row"
        said = set(texts)
        for s in able:
            if fate[s.sample] == "duplicate":
                assert {(p.seat, p.trained) for p in s.seats} <= said
            elif fate[s.sample] == "surplus of its row":
                assert len(kept) == rule.per_row
                assert all((s.reward <= k.reward) if s.task == "up" else (s.reward >= k.reward) for k, _ in kept)
            else:
                assert fate[s.sample] == "kept"
    mixed = list(samples)
    lot.shuffle(mixed)
    again = choose(mixed, rule, HEADLINES)
    assert [(s.sample, seats) for s, seats in again.kept] == [(s.sample, seats) for s, seats in found.kept]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["up", "down"]), min_size=4, max_size=40), st.integers(0, 5))
def test_the_balance_of_tasks(tasks, seed):
    samples = [made(i, task, f"{task}{i}", 0.5, seats=((f"s{i}", f"t{i}"),)) for i, task in enumerate(tasks)]

    def counts(**rule):
        kept = [s.task for s, _ in choose(samples, Rule(seed=seed, **rule), HEADLINES).kept]
        return kept.count("up"), kept.count("down")

    up, down = tasks.count("up"), tasks.count("down")
    if up and down:
        assert counts(weights={"": 1.0}) == (min(up, down), min(up, down))
        unit = min(up / 3, down)
        assert counts(weights={"up": 3.0}) == (int(3 * unit + 1e-9), int(unit + 1e-9))


def test_an_episode_stays_whole_in_the_balance():
    scenes = [made(i, "up", f"row{i}", seats=[(f"{i}{s}", f"{i}{s}") for s in "abc"]) for i in range(5)]
    lines = [made(i, "down", f"line{i}", 0.5, seats=[(f"p{i}", f"p{i}")]) for i in range(8)]
    kept = choose([*scenes, *lines], Rule(weights={"": 1.0}), HEADLINES).kept
    assert [len(seats) for sample, seats in kept if sample.task == "up"] == [3, 3]  # 8 rows have room


def test_equal_answers_are_drawn_by_lot_and_the_seed_decides():
    samples = [made(i, "up", f"row{i // 8}", 0.5, seats=(("policy", f"text{i}"),)) for i in range(80)]
    first, other = (choose(samples, Rule(seed=seed), HEADLINES).kept for seed in (0, 1))
    places = {s.sample % 8 for s, _ in first}
    assert len(first) == 10 and len(places) > 2 and [s.sample for s, _ in first] != [s.sample for s, _ in other]


def test_a_conversation_is_kept_once_whatever_row_it_stands_at():
    seat = Fingerprints("policy", "the same", "yes")
    samples = [ExpertSample(JOURNAL, i, "up", "up", f"row{i}", i, 0, 1.0, seats=(seat,)) for i in range(3)]
    assert sorted(choose(samples, Rule(), HEADLINES).fates) == ["duplicate", "duplicate", "kept"]


def with_keys(row: str, *keys: str) -> ExpertSample:
    return replace(made(0, "up", row), keys=tuple(("up", GroupKey("line", key)) for key in keys))


def test_rows_are_one_group_also_through_other_rows() -> None:
    samples = [
        *(with_keys("a", "x", "q"), with_keys("b", "q", "z"), with_keys("c", "z", "y"), with_keys("d", "y")),
        *(with_keys("e", "v", "w"), with_keys("f"), with_keys("g")),
    ]
    names = group_names(samples)
    assert len({names[row] for row in "abcd"}) == 1
    assert len(set(names.values())) == 4 and names["f"] == "f"
    for seed in range(10):
        Random(seed).shuffle(samples)
        assert group_names(samples) == names


def test_something_is_always_left_to_train() -> None:
    assert {len(held_back(["one book"], 0.5, seed)) for seed in range(20)} == {0}
    assert held_back(["one book"], 1, 0) == {"one book"}
    assert {len(held_back(["a", "b"], 0.5, seed)) for seed in range(20)} == {0, 1}
