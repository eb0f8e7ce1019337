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
        valid: whether the sequence is trained and counted.
        turns: messages of the seat's dialogue.
        tokens: how many of its tokens the policy sampled.
        draft_reward, refined_reward: of the session's episodes, whatever the kind; None where one has no verdict.
        teacher_prompt: ids of a draft's prompt in the feedback context, for a distillation; () where there is none.
        task: of the session's row.
        place: position in the list of sequences of the session's trace; -1: it is not in there.
        read_tokens, cached_tokens: tokens that the engine had to read before it sampled, over all turns, and how many
            of them its prefix cache held; None if the engine does not say.
    """

    kind: Kind | str
    prompt: str
    session: str
    valid: bool
    turns: int = 0
    tokens: int = 0
    draft_reward: float | None = None
    refined_reward: float | None = None
    teacher_prompt: tuple[int, ...] = ()
    task: str = ""
    place: int = -1
    read_tokens: int = 0
    cached_tokens: int | None = None

    @property
    def refined(self) -> bool:
        """Whether the sequence is of the refined episode."""
        return self.kind in ("refined_base", "refined_feedback")

    @property
    def reward(self) -> float:
        """The reward of the sequence's episode; 0.0 where `valid` is false."""
        reward = self.refined_reward if self.refined else self.draft_reward
        return reward if self.valid and reward is not None else 0.0
