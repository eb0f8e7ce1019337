"""The record of a training sequence: written by the agent loop, read by the trainer."""

from __future__ import annotations

from dataclasses import dataclass

from ditto.objectives.spec import Kind


@dataclass(frozen=True)
class SequenceRecord:
    """What the trainer must know of a sequence; travels with it through the queue.

    Attributes:
        kind: draft, refined_base or refined_feedback; "none" for a session that gave nothing to train.
        prompt: id of the prompt's group.
        session: id of the session.
        episode: id of the episode: sequences of one episode share its reward.
        reward: the episode's reward; 0.0 where `valid` is false.
        valid: whether the sequence is trained and counted.
        turns: messages of the seat's dialogue.
        draft_reward: reward of the session's draft, whatever the kind; None where the draft is not valid.
    """

    kind: Kind | str
    prompt: str
    session: str
    episode: str
    reward: float
    valid: bool
    turns: int = 0
    draft_reward: float | None = None
