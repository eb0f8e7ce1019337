"""Turn-taking: one participant's view of a dialogue, and the part of a turn that the other side gets.

A view is append-only, and its roles alternate after the system message, because chat templates require both. It is kept
in two versions, with the feedback and without. `hear` and `spoke` add the same messages to both, so everything after
the instructions is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from soul.answers.thinking import without_thinking
from soul.judge import ChatModel
from soul.judge.call.untrusted import neutral
from soul.message import Message
from soul.policy import Seat

# Generous limits for one turn of a conversation between people. A longer turn is cut in the prompts of the others.
HEARD_WORDS = 200
HEARD_CHARS = 2000
CUT = " [...]"


class View:
    """What one participant has seen and said so far.

    Attributes:
        messages: the conversation as the participant sees it.
        base: the same conversation after instructions without feedback.
    """

    def __init__(self, opening: Sequence[Message], base: Sequence[Message] | None = None) -> None:
        self.messages: list[Message] = list(opening)
        self.base: list[Message] = list(opening if base is None else base)

    def hear(self, text: str) -> None:
        """Add what somebody else said or did. Everything between two own turns becomes one message."""
        for conversation in (self.messages, self.base):
            if conversation and conversation[-1]["role"] == "user":  # not sent yet, or an own turn would follow it
                text_so_far = conversation.pop()["content"]
                conversation.append({"role": "user", "content": f"{text_so_far}\n\n{text}"})
            else:
                conversation.append({"role": "user", "content": text})

    def spoke(self, text: str) -> None:
        """Add the participant's own turn, as it was sampled."""
        for conversation in (self.messages, self.base):
            conversation.append({"role": "assistant", "content": text})

    async def take_seat(self, seat: Seat) -> str:
        """Let the policy take this side's turn.

        Raises:
            PolicyFailure: the policy gave no usable turn.
        """
        text = await seat.say(self.messages, base=self.base)
        self.spoke(text)
        return text

    async def take_model(self, model: ChatModel) -> str:
        """Let another model take this side's turn. It gets `base`, so it never sees the feedback.

        Raises:
            JudgeFailure: the model gave no usable turn.
        """
        text = await model.chat(self.base)
        self.spoke(text)
        return text


def audible(text: str) -> str:
    """The part of a turn that the other participants get: without thoughts and control tokens, shortened, on one line.

    It is one line, so that a participant cannot write a line that looks like another participant's turn.
    """
    words = neutral(without_thinking(text)).split()
    line = " ".join(words[:HEARD_WORDS])
    return line[:HEARD_CHARS] + (CUT if len(words) > HEARD_WORDS or len(line) > HEARD_CHARS else "")
