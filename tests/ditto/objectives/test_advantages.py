"""Group statistics against an independent computation with exact fractions.

Promise under test (DITTO paper, equation 6): A = (r - mean) / (unbiased std + eps) per group; an episode counts once
however many sequences it has; no spread gives 0; the order of episodes changes no bit.
"""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ditto.objectives.advantages import Episode, best_refined, draft_mean, group_mean, part_advantages
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


def test_the_best_refined_answer_is_the_first_of_the_highest_reward() -> None:
    refined = [episode(r, session=i, refined=True) for i, r in enumerate((0.2, 0.9, 0.9))]
    others = [episode(0.1, prompt="q", refined=True), episode(1.0)]
    kept = best_refined([refined[2], *others, refined[1], refined[0]])
    assert set(kept) == {refined[1], *others}
