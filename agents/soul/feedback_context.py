"""The text of feedback in a prompt, and the draft's own conversation with such a prompt.

Self-distillation compares the policy without feedback with the policy that has read it, on the draft's own words. Where
the feedback stands in a prompt is the task's business, so the task plays the row once more with the feedback; its seats
repeat the draft's turns, and the play ends as soon as every seat has shown its first prompt.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from soul.errors import PolicyFailure
from soul.judge import Gateway
from soul.message import Message
from soul.policy import Players
from soul.task import Task
from soul.task_types import Episode, Row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeedbackContext:
    """A seat's first prompt, without and with the feedback."""

    base: Sequence[Message]
    feedback: Sequence[Message]

    def applied_to(self, opening: Sequence[Message]) -> list[Message] | None:
        """The same opening with the feedback; None if it does not begin with the instructions of this seat.

        Messages that both prompts end with, such as the other side's first turn, are not instructions: the opening may
        have others there.
        """
        shared = 0
        while shared < min(len(self.base), len(self.feedback)) and self.base[-1 - shared] == self.feedback[-1 - shared]:
            shared += 1
        without, instructions = (list(prompt[: len(prompt) - shared]) for prompt in (self.base, self.feedback))
        if list(opening[: len(without)]) != without:
            return None
        return instructions + list(opening[len(without) :])


class _AllSeen(Exception):
    """Every seat has shown its first prompt."""


@dataclass
class _RepeatingSeat:
    """Notes its first prompt, then says what the draft said."""

    name: str
    turns: Iterator[str]
    wanted: set[str]
    contexts: dict[str, FeedbackContext] = field(repr=False)

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        self.contexts.setdefault(self.name, FeedbackContext(list(base or messages), list(messages)))
        if self.wanted <= self.contexts.keys():
            raise _AllSeen
        turn = next(self.turns, None)
        if turn is None:
            raise PolicyFailure("policy", f"the draft has no further turn of {self.name}")
        return turn


async def feedback_contexts(
    task: Task[Row],
    row: Row,
    draft: Episode,
    gateway: Gateway,
    feedback: Mapping[str, str],
    deadline_s: float | None = None,
) -> Mapping[str, FeedbackContext]:
    """The first prompts of the draft's seats, without and with the feedback.

    Partner and environment are asked again for what comes before a seat's first turn: a greeting, in a scene of several
    characters the turns until everybody has spoken. A seat that the task does not reach is missing.

    Args:
        feedback: by side; "" is the first one.
        deadline_s: seconds that it may take; None: no limit.
    """
    spoken = {
        seat: [message["content"] for message in messages if message["role"] == "assistant"]
        for seat, messages in draft.seats.items()
    }
    contexts: dict[str, FeedbackContext] = {}
    wanted = {seat for seat, turns in spoken.items() if turns}
    players = Players(lambda seat: _RepeatingSeat(seat, iter(spoken.get(seat, ())), wanted, contexts), gateway=gateway)
    players.feedback = feedback
    try:
        await asyncio.wait_for(task.play(row, players, feedback.get("")), deadline_s)
    except _AllSeen:
        return contexts
    except Exception:  # noqa: BLE001 - the draft stands; what is missing is counted as a draft without a teacher
        logger.warning("%s, row %d: no feedback context for every seat", task.name, row.index, exc_info=True)
    return contexts
