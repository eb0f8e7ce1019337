"""Rewards in, one advantage a sequence out. Pure tensors.

A group statistic counts each episode once: a CoSER episode with five seats is five sequences but one reward. The
standard deviation is the unbiased sample one, as in verl. Statistics do not depend on the order of the rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import torch
from torch import Tensor

from ditto.objectives.spec import Part


def part_advantages(
    part: Part,
    rewards: Tensor,
    prompt: Sequence[str],
    episode: Sequence[str],
    valid: Tensor,
    draft_rewards: Mapping[str, Sequence[float]],
    *,
    normalize_std: bool = True,
) -> Tensor:
    """Advantages of N sequences by the rule of one part of an objective.

    Args:
        rewards: float[N], the reward of each sequence's episode; what invalid ones hold is ignored.
        prompt, episode: N ids each; the part's valid episodes of a prompt form one group.
        valid: bool[N], whether the part trains the sequence.
        draft_rewards: prompt -> rewards of its valid drafts, each draft once.
        normalize_std: false leaves out the division where the part's scale is "std".

    Returns:
        float[N] with the dtype of `rewards`, 0 where `valid` is false. For the loss "nll" 1 where it is true.
    """
    if part.baseline == "group_mean":
        scaled = normalize_std and part.scale == "std"
        return group_advantages(rewards, prompt, episode, valid, normalize_std=scaled)
    if part.loss == "nll":
        return valid.to(rewards.dtype)
    if part.baseline == "first_turn_mean":
        # fsum is exact, so the mean does not depend on the order in which sessions finished.
        baseline = {name: math.fsum(values) / len(values) for name, values in draft_rewards.items()}
    else:
        baseline = dict.fromkeys(prompt, 0.0)
    rows = zip(rewards.double().tolist(), prompt, valid.tolist(), strict=True)
    advantages = [reward - baseline[name] if ok else 0.0 for reward, name, ok in rows]
    return torch.tensor(advantages, dtype=rewards.dtype, device=rewards.device)


def group_advantages(
    rewards: Tensor,
    group: Sequence[Hashable] | Tensor,
    episode: Sequence[Hashable] | Tensor,
    valid: Tensor,
    *,
    normalize_std: bool = True,
    eps: float = 1e-6,
) -> Tensor:
    """A = (r - mean of the group) / (std of the group + eps), DITTO paper, equation 6.

    Args:
        rewards: float[N], the reward of each sequence's episode; what invalid ones hold is ignored (NaN is fine).
        group: N group ids (one per prompt and part).
        episode: N episode ids; sequences of one episode share its reward and count once.
        valid: bool[N]; invalid sequences are left out of the statistics and get advantage 0.
        normalize_std: divide by the group's standard deviation.
        eps: added to the standard deviation.

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
        scale[g] = (r.mean().item(), 1.0 / (r.std(unbiased=True).item() + eps) if normalize_std else 1.0)
    advantages = [
        (value - scale[g][0]) * scale[g][1] if ok and scale[g][1] else 0.0
        for value, g, ok in zip(values, groups, keep, strict=True)
    ]
    return torch.tensor(advantages, dtype=rewards.dtype, device=rewards.device)
