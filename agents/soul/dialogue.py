"""Turn-taking: one side's view of a dialogue, and what reaches the other side of a turn.

A view is append-only, its roles alternate after the system message (chat templates demand both), and it is kept twice:
with the feedback and without. Everything after the instructions is the same in both, because all of it goes through
`hear` and `spoke`.
"""

from __future__ import annotations

from collections.abc import Sequence

from soul.answers.thinking import without_thinking
from soul.judge import ChatModel
from soul.judge.call.untrusted import neutral
from soul.message import Message
from soul.policy import Seat

# One turn of a talk between people. What goes far beyond is not carried into everybody else's prompts.
HEARD_WORDS = 200
HEARD_CHARS = 2000
CUT = " [...]"


class View:
    """What one participant saw and said so far.

    Attributes:
        messages: the conversation as the participant sees it.
        base: the same after the instructions without feedback.
    """

    def __init__(self, opening: Sequence[Message], base: Sequence[Message] | None = None) -> None:
        self.messages: list[Message] = list(opening)
        self.base: list[Message] = list(opening if base is None else base)

    def hear(self, text: str) -> None:
        """Take in what somebody else said or did. Lines between two own turns make one message."""
        for conversation in (self.messages, self.base):
            if conversation and conversation[-1]["role"] == "user":  # not sent yet: an own turn would have followed it
                text_so_far = conversation.pop()["content"]
                conversation.append({"role": "user", "content": f"{text_so_far}\n\n{text}"})
            else:
                conversation.append({"role": "user", "content": text})

    def spoke(self, text: str) -> None:
        """Keep the own turn, as it was sampled."""
        for conversation in (self.messages, self.base):
            conversation.append({"role": "assistant", "content": text})

    async def take_seat(self, seat: Seat) -> str:
        """Let the policy take this side's turn.

        Raises:
            PolicyFailure: no usable turn.
        """
        text = await seat.say(self.messages, base=self.base)
        self.spoke(text)
        return text

    async def take_model(self, model: ChatModel) -> str:
        """Let another model take this side's turn. It never sees the feedback: it gets the base.

        Raises:
            JudgeFailure: no usable turn.
        """
        text = await model.chat(self.base)
        self.spoke(text)
        return text


def audible(text: str) -> str:
    """What others get of a text: outside of think blocks, without control tokens, on one line, not endless.

    One line, so that nobody can write a line that looks like somebody else's.
    """
    words = neutral(without_thinking(text)).split()
    heard = " ".join(words[:HEARD_WORDS])
    return heard[:HEARD_CHARS] + (CUT if len(words) > HEARD_WORDS or len(heard) > HEARD_CHARS else "")
