"""Rewards in, one advantage a sequence out. Pure tensors.

A group statistic counts each episode once: a CoSER episode with five seats is five sequences but one reward. It counts
episodes that are not trained too, if their kind is in the part's group. The standard deviation is the unbiased sample
one, as in verl. Statistics do not depend on the order of the rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Part


@dataclass(frozen=True)
class Episode:
    """An episode with a verdict.

    Attributes:
        prompt, session: ids of the prompt's group and of the session.
        refined: a refined episode; False: a draft.
        reward: from the judge.
    """

    prompt: str
    session: str
    refined: bool
    reward: float

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of sequence that it can give."""
        return ("refined_base", "refined_feedback") if self.refined else ("draft",)


def best_refined(episodes: Iterable[Episode]) -> list[Episode]:
    """The drafts, and of each prompt's refined episodes the one with the highest reward (a tie: the first session)."""
    best: dict[str, Episode] = {}
    kept: list[Episode] = []
    for episode in sorted(episodes, key=lambda e: e.session):
        if not episode.refined:
            kept.append(episode)
        elif episode.prompt not in best or episode.reward > best[episode.prompt].reward:
            best[episode.prompt] = episode
    return kept + list(best.values())


def part_advantages(
    part: Part, trained: Sequence[Episode], episodes: Iterable[Episode], options: ObjectiveOptions
) -> dict[Episode, float]:
    """The advantages of the episodes that a part trains.

    Args:
        trained: the valid episodes whose sequences the part trains.
        episodes: all valid episodes of the step, trained or not.
    """
    everything = list(episodes)
    if part.advantage in ("group_norm", "group_mean"):
        group = [e for e in everything if set(e.kinds) & set(part.group or part.kinds)]
        values = group_advantages(
            torch.tensor([e.reward for e in group], dtype=torch.float64),
            [e.prompt for e in group],
            list(range(len(group))),
            torch.ones(len(group), dtype=torch.bool),
            normalize_std=part.advantage == "group_norm" and options.norm_adv_by_std_in_grpo,
            std_floor=options.std_floor,
        ).tolist()
        of_group = dict(zip(group, values, strict=True))
        return {episode: of_group[episode] for episode in trained}
    drafts: dict[str, dict[str, float]] = defaultdict(dict)  # prompt -> session -> reward
    for episode in everything:
        if not episode.refined:
            drafts[episode.prompt][episode.session] = episode.reward
    # fsum is exact, so the mean does not depend on the order in which sessions finished.
    means = {prompt: math.fsum(rewards.values()) / len(rewards) for prompt, rewards in drafts.items()}
    rules = {
        "draft_mean": lambda e: e.reward - means[e.prompt],
        "reward": lambda e: e.reward,
        "accepted": lambda e: _accepted(e, drafts[e.prompt].get(e.session), options),
        "one": lambda e: 1.0,
    }
    return {episode: rules[part.advantage](episode) for episode in trained}


def _accepted(episode: Episode, draft_reward: float | None, options: ObjectiveOptions) -> float:
    """The weight with which ERL imitates an episode."""
    if options.erl.accept == "positive":
        return max(episode.reward, 0.0)
    return float(draft_reward is not None and episode.reward > draft_reward)


def group_advantages(
    rewards: Tensor,
    group: Sequence[Hashable] | Tensor,
    episode: Sequence[Hashable] | Tensor,
    valid: Tensor,
    *,
    normalize_std: bool = True,
    eps: float = 1e-6,
    std_floor: float = 0.0,
) -> Tensor:
    """A = (r - mean of the group) / (std of the group + eps), DITTO paper, equation 6.

    Args:
        rewards: float[N], the reward of each sequence's episode; what invalid ones hold is ignored (NaN is fine).
        group: N group ids (one per prompt and part).
        episode: N episode ids; sequences of one episode share its reward and count once.
        valid: bool[N]; invalid sequences are left out of the statistics and get advantage 0.
        normalize_std: divide by the group's standard deviation.
        eps: added to the standard deviation.
        std_floor: a smaller standard deviation counts as this one.

    Returns:
        float[N] with the dtype of `rewards`. 0 for invalid sequences, for groups with one valid episode, and for groups
        without spread.

    Raises:
        ValueError: lengths differ, or the valid sequences of one episode have different rewards.
    """
    groups = group.tolist() if isinstance(group, Tensor) else list(group)
    episodes = episode.tolist() if isinstance(episode, Tensor) else list(episode)
    if not len(rewards) == len(groups) == len(episodes) == len(valid):
        raise ValueError(f"lengths differ: {len(rewards)=}, {len(groups)=}, {len(episodes)=}, {len(valid)=}")
    reward_of: dict[Hashable, dict[Hashable, float]] = defaultdict(dict)
    values, keep = rewards.double().tolist(), valid.tolist()
    for value, g, e, ok in zip(values, groups, episodes, keep, strict=True):
        if ok and reward_of[g].setdefault(e, value) != value:
            raise ValueError(f"episode {e!r} of group {g!r} has two rewards: {reward_of[g][e]} and {value}")
    scale: dict[Hashable, tuple[float, float]] = {}
    for g, members in reward_of.items():
        # Sorted, so that the sum does not depend on the order in which sessions finished.
        r = torch.tensor(sorted(members.values()), dtype=torch.float64)
        if len(r) < 2 or r[0] == r[-1]:
            scale[g] = (0.0, 0.0)
            continue
        divisor = max(r.std(unbiased=True).item(), std_floor) + eps if normalize_std else 1.0
        scale[g] = (r.mean().item(), 1.0 / divisor)
    advantages = [
        (value - scale[g][0]) * scale[g][1] if ok and scale[g][1] else 0.0
        for value, g, ok in zip(values, groups, keep, strict=True)
    ]
    return torch.tensor(advantages, dtype=rewards.dtype, device=rewards.device)
