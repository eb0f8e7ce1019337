"""Turn-taking: one participant's view of a dialogue, and the part of a turn that the others hear.

A view is append-only, and its roles alternate after the system message, because chat templates require both. It keeps
two versions, with and without the feedback. `hear` and `spoke` add the same messages to both, so the versions differ
only in their instructions.
"""

from collections.abc import Sequence

from soul.answers.thinking import without_thinking
from soul.judge import ChatModel
from soul.judge.call.untrusted import neutral
from soul.message import Message
from soul.policy import Seat

# Generous limits for one turn of a conversation. Longer turns are truncated in the other participants' prompts.
HEARD_WORDS = 200
HEARD_CHARS = 2000
CUT = " [...]"


class View:
    """What one participant has seen and said so far.

    Attributes:
        messages: the conversation as the participant sees it.
        base: the same conversation, with instructions that do not contain the feedback.
    """

    def __init__(self, opening: Sequence[Message], base: Sequence[Message] | None = None) -> None:
        self.messages: list[Message] = list(opening)
        self.base: list[Message] = list(opening if base is None else base)

    def hear(self, text: str) -> None:
        """Add what somebody else said or did. Everything between two turns of the participant becomes one message."""
        for conversation in (self.messages, self.base):
            content = text
            if conversation and conversation[-1]["role"] == "user":  # not sent yet: no turn of the participant follows
                content = f"{conversation.pop()['content']}\n\n{text}"
            conversation.append({"role": "user", "content": content})

    def spoke(self, text: str) -> None:
        """Add the participant's own turn, as it was sampled."""
        for conversation in (self.messages, self.base):
            conversation.append({"role": "assistant", "content": text})

    async def take_seat(self, seat: Seat) -> str:
        """Let the policy take this participant's turn.

        Raises:
            PolicyFailure: the policy gave no usable turn.
        """
        text = await seat.say(self.messages, base=self.base)
        self.spoke(text)
        return text

    async def take_model(self, model: ChatModel) -> str:
        """Let another model take this participant's turn. It gets `base`, so it never sees the feedback.

        Raises:
            JudgeFailure: the model gave no usable turn.
        """
        text = await model.chat(self.base)
        self.spoke(text)
        return text


def audible(text: str) -> str:
    """The part of a turn that the others hear: on one line, truncated, without thoughts and control tokens.

    One line, so that nobody can write a line that looks like another participant's turn.
    """
    words = neutral(without_thinking(text)).split()
    line = " ".join(words[:HEARD_WORDS])
    return line[:HEARD_CHARS] + (CUT if len(words) > HEARD_WORDS or len(line) > HEARD_CHARS else "")
