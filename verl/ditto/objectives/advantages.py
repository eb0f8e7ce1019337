"""Group statistics: rewards in, one advantage a sequence out. Pure tensors.

A = (r - mean of the group) / (std of the group + eps), paper equation 6. A group statistic counts each episode once:
a CoSER episode with five seats is five sequences but one reward. The standard deviation is the unbiased sample one, as
in verl. Statistics do not depend on the order of the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor


def group_advantages(
    rewards: Tensor,
    group: Sequence[Hashable] | Tensor,
    episode: Sequence[Hashable] | Tensor,
    valid: Tensor,
    *,
    normalize_std: bool = True,
    eps: float = 1e-6,
) -> Tensor:
    """Advantages of N sequences.

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
