"""Group statistics against an independent computation with exact fractions.

Promise under test (DITTO paper, equation 6): A = (r - mean) / (unbiased std + eps) per group; an episode counts once
however many sequences it has; invalid sequences are left out; no spread gives 0; the order of rows changes no bit.
"""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ditto.objectives.advantages import Episode, best_refined, group_advantages, part_advantages
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Part

NAN = float("nan")
DEFAULT = ObjectiveOptions()


def by_hand(episodes: dict[str, float], normalize_std: bool = True, eps: float = 1e-6) -> dict[str, float]:
    """Advantage of each episode of one group, mean and variance in exact arithmetic."""
    exact = {name: Fraction(reward) for name, reward in episodes.items()}
    mean = sum(exact.values()) / len(exact)
    if len(exact) < 2 or len(set(exact.values())) == 1:
        return dict.fromkeys(exact, 0.0)
    variance = sum((r - mean) ** 2 for r in exact.values()) / (len(exact) - 1)
    scale = math.sqrt(variance) + eps if normalize_std else 1.0
    return {name: float(r - mean) / scale for name, r in exact.items()}


def advantages(rows: list[tuple[float, str, str, bool]], dtype: torch.dtype = torch.float64, **kwargs: bool) -> list:
    reward, group, episode, valid = zip(*rows, strict=True)
    return group_advantages(
        torch.tensor(reward, dtype=dtype), list(group), list(episode), torch.tensor(valid), **kwargs
    ).tolist()


def test_formula_with_unbiased_std_and_eps() -> None:
    rewards = {"a": 0.1, "b": 0.4, "c": 0.4, "d": 0.95}
    got = advantages([(r, "g", e, True) for e, r in rewards.items()])
    assert got == pytest.approx(list(by_hand(rewards).values()), rel=1e-12)


def test_two_rewards_have_the_unbiased_std() -> None:
    # mean 0.5, unbiased std sqrt(0.5) (the biased one would be 0.5 and give 1.0)
    assert advantages([(0.0, "g", "a", True), (1.0, "g", "b", True)]) == pytest.approx(
        [-0.5 / (math.sqrt(0.5) + 1e-6), 0.5 / (math.sqrt(0.5) + 1e-6)], rel=1e-12
    )


def test_eps_damps_a_tiny_spread() -> None:
    # std = 1e-6 / sqrt(2); with eps = 1e-6 the advantage is far below the 0.707 it would be without
    got = advantages([(0.0, "g", "a", True), (1e-6, "g", "b", True)])
    assert got[1] == pytest.approx(5e-7 / (1e-6 / math.sqrt(2) + 1e-6), rel=1e-9)


def test_eps_is_an_argument() -> None:
    got = group_advantages(torch.tensor([0.0, 1.0]).double(), ["g"] * 2, ["a", "b"], torch.tensor([True] * 2), eps=0.5)
    assert got.tolist() == pytest.approx(list(by_hand({"a": 0, "b": 1}, eps=0.5).values()), rel=1e-12)


def test_episode_with_five_seats_counts_once() -> None:
    rows = [(0.9, "g", "coser", True)] * 5 + [(0.1, "g", "b", True), (0.2, "g", "c", True)]
    expected = by_hand({"coser": 0.9, "b": 0.1, "c": 0.2})
    got = advantages(rows)
    assert got == pytest.approx([expected["coser"]] * 5 + [expected["b"], expected["c"]], rel=1e-12)
    assert got[0] == got[4]


def test_same_episode_name_in_two_groups_is_two_episodes() -> None:
    # The refined episode is in the joint group and, in its own context, in the feedback group.
    rows = [(0.5, "joint", "refined", True), (0.1, "joint", "draft", True), (0.5, "feedback", "refined", True)]
    expected = by_hand({"refined": 0.5, "draft": 0.1})
    assert advantages(rows) == pytest.approx([expected["refined"], expected["draft"], 0.0], rel=1e-12)


def test_groups_do_not_touch_each_other() -> None:
    one = [(0.1, "g", "a", True), (0.7, "g", "b", True)]
    other = [(100.0, "h", "a", True), (-3.0, "h", "b", True)]
    assert advantages(one + other) == advantages(one) + advantages(other)


@pytest.mark.parametrize("rows", [[(0.7, "g", "a", True)], [(0.3, "g", e, True) for e in "abc"]])
def test_singletons_and_groups_without_spread_are_zero(rows: list[tuple[float, str, str, bool]]) -> None:
    assert advantages(rows) == [0.0] * len(rows)
    assert advantages(rows, normalize_std=False) == [0.0] * len(rows)


def test_one_episode_with_two_seats_is_a_singleton() -> None:
    assert advantages([(0.7, "g", "a", True), (0.7, "g", "a", True)]) == [0.0, 0.0]


@pytest.mark.parametrize("reward", [NAN, 0.0, 1e9])
def test_invalid_rows_are_left_out_and_zero(reward: float) -> None:
    rows = [(0.1, "g", "a", True), (reward, "g", "x", False), (0.7, "g", "b", True)]
    expected = by_hand({"a": 0.1, "b": 0.7})
    assert advantages(rows) == pytest.approx([expected["a"], 0.0, expected["b"]], rel=1e-12)


def test_one_valid_member_beside_invalid_ones_is_zero() -> None:
    assert advantages([(0.1, "g", "a", True), (NAN, "g", "b", False)]) == [0.0, 0.0]


def test_without_normalisation_the_mean_alone_is_taken_off() -> None:
    rewards = {"a": 0.1, "b": 0.4, "c": 0.95}
    got = advantages([(r, "g", e, True) for e, r in rewards.items()], normalize_std=False)
    assert got == pytest.approx(list(by_hand(rewards, normalize_std=False).values()), rel=1e-12)


def test_tensors_as_ids() -> None:
    got = group_advantages(
        torch.tensor([0.0, 1.0, 5.0, 5.0]),
        torch.tensor([0, 0, 1, 1]),
        torch.tensor([0, 1, 2, 3]),
        torch.ones(4, dtype=torch.bool),
    )
    assert got[0] == -got[1] != 0
    assert got[2:].tolist() == [0.0, 0.0]


def test_nothing_in_nothing_out() -> None:
    assert len(group_advantages(torch.zeros(0), [], [], torch.zeros(0, dtype=torch.bool))) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dtype_is_kept_and_computed_in_double(dtype: torch.dtype) -> None:
    rewards = torch.tensor([0.25, 0.5, 1.0], dtype=dtype)
    got = group_advantages(rewards, ["g"] * 3, ["a", "b", "c"], torch.ones(3, dtype=torch.bool))
    assert got.dtype == dtype
    expected = torch.tensor(list(by_hand({"a": 0.25, "b": 0.5, "c": 1.0}).values()), dtype=torch.float64).to(dtype)
    # Rounded once, from double: for the narrower types that is the nearest value.
    torch.testing.assert_close(got, expected, rtol=1e-14 if dtype == torch.float64 else 0, atol=0)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="lengths differ"):
        group_advantages(torch.zeros(2), ["g"], ["a", "b"], torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="lengths differ"):
        group_advantages(torch.zeros(2), ["g"] * 2, ["a", "b"], torch.ones(3, dtype=torch.bool))


def test_two_rewards_in_one_episode_are_an_error() -> None:
    with pytest.raises(ValueError, match="'a'.*two rewards"):
        advantages([(0.1, "g", "a", True), (0.2, "g", "a", True)])


def test_a_second_reward_of_an_invalid_row_is_ignored() -> None:
    assert advantages([(0.1, "g", "a", True), (0.2, "g", "a", False), (0.4, "g", "b", True)])[1] == 0.0


def episode(reward: float, *, prompt: str = "p", session: int = 0, refined: bool = False) -> Episode:
    return Episode(prompt, f"{prompt}_{session}", refined, reward)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=8),
    st.floats(-10, 10, width=32),
    st.randoms(use_true_random=False),
)
def test_the_mean_of_the_drafts_is_exact_in_any_order(
    rewards: list[float], reward: float, shuffler: "st.randoms"
) -> None:
    part = Part("distill", ("refined_base",), advantage="draft_mean", loss="plain")
    refined = episode(reward, refined=True)
    drafts = [episode(r, session=i) for i, r in enumerate(rewards)]
    shuffled = list(drafts)
    shuffler.shuffle(shuffled)
    got = [part_advantages(part, [refined], [*order, refined], DEFAULT)[refined] for order in (drafts, shuffled)]
    expected = float(Fraction(reward) - sum(map(Fraction, rewards)) / len(rewards))
    assert got[0] == got[1] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_group_counts_episodes_that_are_not_trained() -> None:
    part = Part("refined", ("refined_base",), group=("draft", "refined_base"))
    drafts = [episode(r, session=i) for i, r in enumerate((0.1, 0.5))]
    refined = [episode(0.9, session=1, refined=True)]
    assert part_advantages(part, refined, drafts + refined, DEFAULT)[refined[0]] == pytest.approx(
        by_hand({"a": 0.1, "b": 0.5, "c": 0.9})["c"]
    )


def test_the_best_refined_answer_is_the_first_of_the_highest_reward() -> None:
    refined = [episode(r, session=i, refined=True) for i, r in enumerate((0.2, 0.9, 0.9))]
    others = [episode(0.1, prompt="q", refined=True), episode(1.0)]
    kept = best_refined([refined[2], *others, refined[1], refined[0]])
    assert set(kept) == {refined[1], *others}


@pytest.mark.parametrize(
    ("erl", "expected"),
    [
        ({}, [0.0, 0.0, 1.0]),
        ({"accept": "positive"}, [0.0, 0.3, 0.8]),
    ],
)
def test_erl_accepts_by_its_own_draft_or_the_reward(erl: dict, expected: list[float]) -> None:
    part = Part("imitation", ("refined_base",), advantage="accepted", loss="plain")
    drafts = [episode(r, session=i) for i, r in enumerate((0.5, 0.3, 0.7))]
    refined = [episode(r, session=i, refined=True) for i, r in enumerate((-0.5, 0.3, 0.8))]
    values = part_advantages(part, refined, drafts + refined, ObjectiveOptions(erl=erl))
    assert [values[e] for e in refined] == expected


def test_a_floor_of_the_spread_bounds_the_advantage_of_a_rare_failure() -> None:
    """31 right drafts and one wrong one: by the paper's equation the wrong one gets -5.5."""
    drafts = [episode(float(i > 0), session=i) for i in range(32)]
    part = Part("joint", ("draft",))
    values = [part_advantages(part, drafts, drafts, ObjectiveOptions(std_floor=floor))[drafts[0]] for floor in (0, 0.5)]
    assert values[0] == pytest.approx(-31 / 32 / math.sqrt(1 / 32), rel=1e-5)
    assert values[1] == pytest.approx(-31 / 32 / 0.5, rel=1e-5)


EPISODES = st.lists(
    st.tuples(st.floats(-10, 10, width=32), st.integers(0, 2), st.integers(1, 3), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=100)
@given(EPISODES, st.randoms(use_true_random=False), st.booleans())
def test_order_of_rows_changes_no_bit(episodes: list, shuffler: "st.randoms", normalize_std: bool) -> None:
    rows = [
        (reward, f"g{group}", f"e{number}", valid)
        for number, (reward, group, seats, valid) in enumerate(episodes)
        for _ in range(seats)
    ]
    order = list(range(len(rows)))
    shuffler.shuffle(order)
    straight = advantages(rows, normalize_std=normalize_std)
    shuffled = advantages([rows[i] for i in order], normalize_std=normalize_std)
    assert [straight[i] for i in order] == shuffled


@settings(deadline=None, max_examples=100)
@given(EPISODES)
def test_any_group_equals_the_exact_computation(episodes: list) -> None:
    rows, groups = [], {}
    for number, (reward, group, seats, valid) in enumerate(episodes):
        rows += [(reward, f"g{group}", f"e{number}", valid)] * seats
        if valid:
            groups.setdefault(f"g{group}", {})[f"e{number}"] = reward
    expected = {group: by_hand(members) for group, members in groups.items()}
    for (_, group, episode, valid), value in zip(rows, advantages(rows), strict=True):
        assert value == pytest.approx(expected[group][episode] if valid else 0.0, rel=1e-9, abs=1e-12)
