"""The advantage of an episode: the factor of its sequences in the loss, from the rewards of its prompt.

An advantage is a function of an episode, the prompt's other episodes and the options. Statistics count each episode
once: a CoSER episode with five seats is five sequences but one reward. They count episodes that are not trained too, if
their kind is in the part's group. Sums are exact (fsum), so they do not depend on the order in which sessions finished.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ditto.objectives.options import ObjectiveOptions, declare

if TYPE_CHECKING:
    from ditto.objectives.spec import Part

_EPS = 1e-6  # beside the standard deviation


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


@dataclass(frozen=True)
class Peers:
    """The rewards of a prompt's valid episodes.

    Attributes:
        group: of the episodes whose kind is in the part's group, the episode itself included.
        drafts, refined: session -> reward of its draft and of its refined answer, whether or not they are trained.
    """

    group: Sequence[float]
    drafts: Mapping[str, float]
    refined: Mapping[str, float]


@declare(compares="group", reads=("norm_adv_by_std_in_grpo", "std_floor"))
def group_norm(episode: Episode, peers: Peers, options: ObjectiveOptions) -> float:
    """(r - mean) / (std + 1e-6) of the group, with the unbiased std (DITTO paper, equation 6); 0 without a spread."""
    if not options.norm_adv_by_std_in_grpo or not _has_spread(peers.group):
        return group_mean(episode, peers, options)
    mean = _mean(peers.group)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in peers.group) / (len(peers.group) - 1))
    return (episode.reward - mean) / (max(std, options.std_floor) + _EPS)


@declare(compares="group")
def group_mean(episode: Episode, peers: Peers, options: ObjectiveOptions) -> float:
    """r - mean of the group; 0 without a spread."""
    return episode.reward - _mean(peers.group) if _has_spread(peers.group) else 0.0


@declare(compares="drafts")
def draft_mean(episode: Episode, peers: Peers, options: ObjectiveOptions) -> float:
    """r - the mean of the prompt's drafts, trained or not."""
    return episode.reward - _mean(list(peers.drafts.values()))


@declare(compares="drafts", reads=("rltf.gamma",))
def draft_return(episode: Episode, peers: Peers, options: ObjectiveOptions) -> float:
    """R - the mean of R over the prompt's drafts; R = r + gamma r' of a draft with a refined answer, else r (RLTF)."""
    returns = {s: r + options.rltf.gamma * peers.refined.get(s, 0.0) for s, r in peers.drafts.items()}
    return returns[episode.session] - _mean(list(returns.values()))


def reward(episode: Episode, peers: Peers, options: ObjectiveOptions) -> float:
    """r."""
    return episode.reward


@declare(compares="own draft")
def accepted(episode: Episode, peers: Peers, options: ObjectiveOptions) -> float:
    """1 for a refined answer that beats its own draft, else 0: the weight with which ERL imitates it."""
    return float(episode.session in peers.drafts and episode.reward > peers.drafts[episode.session])


def one(episode: Episode, peers: Peers, options: ObjectiveOptions) -> float:
    """1: every valid sequence counts the same, whatever its reward."""
    return 1.0


def _mean(rewards: Sequence[float]) -> float:
    return math.fsum(rewards) / len(rewards)


def _has_spread(rewards: Sequence[float]) -> bool:
    return len(rewards) > 1 and min(rewards) != max(rewards)


def part_advantages(
    part: Part, trained: Sequence[Episode], episodes: Iterable[Episode], options: ObjectiveOptions
) -> dict[Episode, float]:
    """The advantages of the episodes that a part trains.

    Args:
        trained: the valid episodes whose sequences the part trains.
        episodes: all valid episodes of the step, trained or not.
    """
    group: defaultdict[str, list[float]] = defaultdict(list)
    rewards: defaultdict[tuple[str, bool], dict[str, float]] = defaultdict(dict)
    counted = set(part.group or part.kinds)
    for episode in episodes:
        if counted & set(episode.kinds):
            group[episode.prompt].append(episode.reward)
        rewards[episode.prompt, episode.refined][episode.session] = episode.reward

    def peers(prompt: str) -> Peers:
        return Peers(group[prompt], rewards[prompt, False], rewards[prompt, True])

    return {episode: part.advantage(episode, peers(episode.prompt), options) for episode in trained}


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
