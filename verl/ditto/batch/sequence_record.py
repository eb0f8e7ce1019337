"""The record of a training sequence: grown by its seat, labelled by the agent loop, weighed by the trainer.

One record goes from the seat to the loss. Between the processes of agent loop and trainer, verl's queue carries the
tokens as columns, and `packed` beside them.
"""

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
    """A training sequence in one context."""

    kind: Kind | str  # "none" for a session that gave nothing to train
    prompt: str  # id of the prompt's group; where a play has several sides, "<id>:<side>"
    session: str  # id of the session
    valid: bool  # the sequence is trained and counted
    turns: int = 0  # messages of the seat's dialogue: one read and one sampled per turn
    tokens: int = 0  # how many of its tokens the policy sampled
    draft_reward: float | None = None  # of the session's draft, whatever the kind; None: no verdict
    refined_reward: float | None = None  # of its refined episode
    teacher_prompt: tuple[int, ...] = ()  # ids of a draft's prompt in the feedback context, for a distillation
    task: str = ""
    place: int = -1  # in the list of sequences of the session's trace; -1: it is not in there
    seat: str = ""  # that sampled it
    policy: str = ""  # that sampled it, where a run trains several
    masked: str | None = None  # why it is not trained, as far as the session knows; None: the objective may train it
    loss: RowLoss = RowLoss()  # what the trainer's plan says of it

    # Its tokens, as they were sampled.
    prompt_ids: list[int] = field(default_factory=list)  # in the sequence's context
    base_prompt_ids: list[int] = field(default_factory=list)  # the same prompt without feedback
    response_ids: list[int] = field(default_factory=list)  # sampled turns, and context between them
    response_mask: list[int] = field(default_factory=list)  # 1 where the policy sampled the token
    response_logprobs: list[float] = field(default_factory=list)  # the rollout engine's; 0 where not sampled
    has_log_probs: bool = True  # the engine returned log-probs for every turn
    turn_times: list[tuple[float, float]] = field(default_factory=list)  # start (unix time) and seconds of each turn
    versions: tuple[int, int] | None = None  # first and last training step whose weights sampled it

    # What its seat knows while it grows.
    messages: list[Message] = field(default_factory=list)  # the conversation that the ids encode
    prefix: int = 0  # how many of the messages are in the prompt
    text: str = ""  # the context of the last turn, as the chat template renders it
    exact: bool = True  # the ids of every turn stand for exactly the text that the other speakers got
    full: bool = False  # there was no room for another turn, so nothing is added any more
    cut: bool = False  # a turn was cut off by a limit on tokens

    @property
    def asked(self) -> str:
        """The id of the prompt that the step asked for; all sides of its plays share it."""
        return self.prompt.partition(":")[0]

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

    def summary(self, with_tokens: bool = False) -> SequenceSummary:
        """The line of the trace about it."""
        mean = None
        if self.tokens and self.has_log_probs:
            mean = sum(compress(self.response_logprobs, self.response_mask)) / self.tokens
        response = []
        if with_tokens and self.has_log_probs:
            rows = zip(self.response_ids, self.response_logprobs, self.response_mask, strict=True)
            response = [(token, round(logprob, 6) if sampled else None) for token, logprob, sampled in rows]
        return SequenceSummary(
            attempt="refined" if self.refined else "draft",
            seat=self.seat,
            kind=self.kind,
            prompt_tokens=len(self.prompt_ids),
            response_tokens=self.tokens,
            turn_times=self.turn_times,
            logp_sampled=mean,
            masked=self.masked,
            prompt_ids=self.prompt_ids if with_tokens else [],
            response=response,
        )


_TRAVELS = (
    *("kind", "prompt", "session", "valid", "turns", "tokens", "draft_reward", "refined_reward", "teacher_prompt"),
    *("task", "place", "policy"),
)
PADDING = SequenceRecord("padding", "", "", valid=False)
