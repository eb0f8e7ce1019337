"""The record of a training sequence: grown by its seat, labelled by the agent loop, weighed by the trainer.

One record goes from the seat to the loss. Between the processes of agent loop and trainer, verl's queue carries the
tokens as columns, and `packed` beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

from ditto.objectives.spec import Kind
from soul.message import Message
from soul.record import SequenceSummary


class RowLoss(NamedTuple):
    """The numbers of a sequence that the loss reads beside its tokens; by default those of one that nothing trains.

    Attributes:
        part: number of its policy part; -1: none.
        share: 1 / tokens of that part in the mini-batch, for metrics.
        mean: what one of its tokens weighs in an average over all trained sequences.
        advantage: of its episode, in its policy part.
        weight, distill_weight: what one of its sampled tokens weighs in its policy part and in the distillation.
        teacher: number of the checkpoint that teaches it (`DistillOptions`); -1: none does.
    """

    part: float = -1.0
    share: float = 0.0
    mean: float = 0.0
    advantage: float = 0.0
    weight: float = 0.0
    distill_weight: float = 0.0
    teacher: int = -1

    @property
    def learns(self) -> bool:
        """True if the row moves the policy: it is distilled, or has an advantage. KL and entropy terms aside."""
        return self.distill_weight != 0 or self.weight * self.advantage != 0


@dataclass
class SequenceRecord:
    """A training sequence in one context.

    Attributes:
        kind: draft, refined_base or refined_feedback; "none" for a session that gave nothing to train.
        prompt: id of the prompt's group.
        session: id of the session.
        valid: whether the sequence is trained and counted.
        turns: messages of the seat's dialogue: one read and one sampled per turn.
        tokens: how many of its tokens the policy sampled.
        draft_reward, refined_reward: of the session's episodes, whatever the kind; None where one has no verdict.
        teacher_prompt: ids of a draft's prompt in the feedback context, for a distillation; () where there is none.
        task: of the session's row.
        place: position in the list of sequences of the session's trace; -1: it is not in there.
        read_tokens, cached_tokens: tokens that the engine had to read before it sampled, over all turns, and how many
            of them its prefix cache held; None if the engine does not say.
        seat: the seat that sampled it.
        masked: why it is not trained, as far as the session knows; None if the objective may train it.
        loss: what the trainer's plan says of it.

        prompt_ids: the prompt in the sequence's context.
        base_prompt_ids: the same prompt without feedback (the base context).
        response_ids: everything after the prompt: sampled turns, and context between them.
        response_mask: 1 where the policy sampled the token.
        response_logprobs: the rollout engine's log-probs of sampled tokens, 0 elsewhere.
        has_log_probs: the engine returned log-probs for every turn.
        turn_times: start (unix time) and seconds of each turn while it was sampled.
        versions: first and last version (training step) of the weights that sampled it.

        messages: the conversation that the ids encode.
        prefix: how many of the messages are in the prompt.
        text: the context of the last turn, as the chat template renders it.
        exact: the ids of every turn stand for exactly the text that the other speakers got.
        full: there was no room for another turn, so nothing is added any more.
        cut: a turn was cut off by a limit on tokens.
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
    seat: str = ""
    masked: str | None = None
    loss: RowLoss = RowLoss()

    # Its tokens, as they were sampled.
    prompt_ids: list[int] = field(default_factory=list)
    base_prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    response_logprobs: list[float] = field(default_factory=list)
    has_log_probs: bool = True
    turn_times: list[tuple[float, float]] = field(default_factory=list)
    versions: tuple[int, int] | None = None

    # What its seat knows while it grows.
    messages: list[Message] = field(default_factory=list)
    prefix: int = 0
    text: str = ""
    exact: bool = True
    full: bool = False
    cut: bool = False

    @property
    def refined(self) -> bool:
        """True if the sequence is of the refined episode."""
        return self.kind in ("refined_base", "refined_feedback")

    @property
    def reward(self) -> float:
        """The reward of the sequence's episode; 0.0 where `valid` is false."""
        reward = self.refined_reward if self.refined else self.draft_reward
        return reward if self.valid and reward is not None else 0.0

    def packed(self) -> dict[str, Any]:
        """The fields that travel beside the tokens: the constructor's arguments in the trainer."""
        return {name: getattr(self, name) for name in _TRAVELS}

    def summary(self) -> SequenceSummary:
        """The line of the trace about it."""
        mean = None
        if self.tokens and self.has_log_probs:
            mean = sum(compress(self.response_logprobs, self.response_mask)) / self.tokens
        return SequenceSummary(
            attempt="refined" if self.refined else "draft",
            seat=self.seat,
            kind=self.kind,
            prompt_tokens=len(self.prompt_ids),
            response_tokens=self.tokens,
            turn_times=self.turn_times,
            logp_sampled=mean,
            masked=self.masked,
        )


_TRAVELS = (
    *("kind", "prompt", "session", "valid", "turns", "tokens", "draft_reward", "refined_reward", "teacher_prompt"),
    *("task", "place", "read_tokens", "cached_tokens"),
)
PADDING = SequenceRecord("padding", "", "", valid=False)
