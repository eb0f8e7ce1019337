"""Group statistics against an independent computation with exact fractions.

Promise under test (DITTO paper, equation 6): A = (r - mean) / (unbiased std + eps) per group; an episode counts once
however many sequences it has; no spread gives 0; the order of episodes changes no bit.
"""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ditto.objectives.advantages import Episode, accepted, best_refined, draft_mean, group_mean, part_advantages
from ditto.objectives.losses import plain
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Part

pytestmark = pytest.mark.smoke

DEFAULT = ObjectiveOptions()
DRAFTS = Part("joint", ("draft",))


def by_hand(episodes: dict[str, float], normalize_std: bool = True) -> dict[str, float]:
    """Advantage of each episode of one group, mean and variance in exact arithmetic."""
    exact = {name: Fraction(reward) for name, reward in episodes.items()}
    mean = sum(exact.values()) / len(exact)
    if len(exact) < 2 or len(set(exact.values())) == 1:
        return dict.fromkeys(exact, 0.0)
    variance = sum((r - mean) ** 2 for r in exact.values()) / (len(exact) - 1)
    scale = math.sqrt(variance) + 1e-6 if normalize_std else 1.0
    return {name: float(r - mean) / scale for name, r in exact.items()}


def of_drafts(*rewards: float, prompt: str = "p", **options: bool) -> list[float]:
    """The advantages of a prompt's drafts."""
    drafts = [episode(reward, prompt=prompt, session=i) for i, reward in enumerate(rewards)]
    return list(part_advantages(DRAFTS, drafts, drafts, ObjectiveOptions(**options)).values())


def test_two_rewards_have_the_unbiased_std() -> None:
    # mean 0.5, unbiased std sqrt(0.5) (the biased one would be 0.5 and give 1.0)
    expected = 0.5 / (math.sqrt(0.5) + 1e-6)
    assert of_drafts(0.0, 1.0) == pytest.approx([-expected, expected], rel=1e-12)


def test_groups_do_not_touch_each_other() -> None:
    both = [
        episode(r, prompt=p, session=i)
        for p, rewards in (("p", (0.1, 0.7)), ("q", (100.0, -3.0)))
        for i, r in enumerate(rewards)
    ]
    values = list(part_advantages(DRAFTS, both, both, DEFAULT).values())
    assert values == of_drafts(0.1, 0.7) + of_drafts(100.0, -3.0)


@pytest.mark.parametrize("rewards", [(0.7,), (0.1, 0.1, 0.1)])
def test_singletons_and_groups_without_spread_are_zero(rewards: tuple[float, ...]) -> None:
    for normalised in (True, False):
        assert of_drafts(*rewards, norm_adv_by_std_in_grpo=normalised) == [0.0] * len(rewards)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=12), st.randoms(use_true_random=False), st.booleans()
)
def test_any_group_equals_the_exact_computation_in_any_order(
    rewards: list[float], shuffler: "st.randoms", normalised: bool
) -> None:
    options = ObjectiveOptions(norm_adv_by_std_in_grpo=normalised)
    drafts = [episode(reward, session=i) for i, reward in enumerate(rewards)]
    shuffled = list(drafts)
    shuffler.shuffle(shuffled)
    got, other = (part_advantages(DRAFTS, order, order, options) for order in (drafts, shuffled))
    assert got == other
    expected = by_hand({str(i): reward for i, reward in enumerate(rewards)}, normalised)
    assert list(got.values()) == pytest.approx(list(expected.values()), rel=1e-9, abs=1e-12)
    if not normalised:
        mean = part_advantages(Part("joint", ("draft",), advantage=group_mean), drafts, drafts, DEFAULT)
        assert mean == got


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
    part = Part("distill", ("refined_base",), advantage=draft_mean, loss=plain)
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


def test_erl_accepts_what_beats_its_own_draft() -> None:
    part = Part("imitation", ("refined_base",), advantage=accepted, loss=plain)
    drafts = [episode(r, session=i) for i, r in enumerate((0.5, 0.3, 0.7))]
    refined = [episode(r, session=i, refined=True) for i, r in enumerate((-0.5, 0.3, 0.8))]
    values = part_advantages(part, refined, drafts + refined, DEFAULT)
    assert [values[e] for e in refined] == [0.0, 0.0, 1.0]


def test_a_floor_of_the_spread_bounds_the_advantage_of_a_rare_failure() -> None:
    """31 right drafts and one wrong one: by the paper's equation the wrong one gets -5.5."""
    drafts = [episode(float(i > 0), session=i) for i in range(32)]
    part = Part("joint", ("draft",))
    values = [part_advantages(part, drafts, drafts, ObjectiveOptions(std_floor=floor))[drafts[0]] for floor in (0, 0.5)]
    assert values[0] == pytest.approx(-31 / 32 / math.sqrt(1 / 32), rel=1e-5)
    assert values[1] == pytest.approx(-31 / 32 / 0.5, rel=1e-5)
