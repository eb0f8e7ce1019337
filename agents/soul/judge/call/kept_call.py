"""The calls of a session as its record keeps them: what a judge was sent, verbatim, and what it answered.

The cache cannot replace it: it maps a hash of the question to the answer and does not keep the question. An attempt
keeps a fixed number of characters at most, so that a judge that reads long episodes does not multiply the traces.
"""

from collections.abc import Sequence

from pydantic import BaseModel

from soul.message import Message

MOST_CHARACTERS = 8_000  # of an attempt's calls; a session has two attempts


class KeptCall(BaseModel):
    """One question and its answer. A question that is asked again is another call.

    Attributes:
        role: "judge" (each member of a jury too) or "feedback".
        request: the messages; an endpoint that takes no JSON schema also gets the schema, after the first message.
        reply: None if there was no answer.
        failure: why there was none, or why it could not be used; "" if it was used.
        prompt_tokens, completion_tokens: as the endpoint counted them; 0 for an answer that was there already.
        cached: the answer came from the cache, or from an equal call at the same time.
        started, seconds: when it was asked (unix time), and how long it took, waiting included; 0 in older records.
    """

    role: str = ""
    model: str
    request: list[Message]
    reply: str | None = None
    failure: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: bool = False
    started: float = 0.0
    seconds: float = 0.0


def bounded(calls: Sequence[KeptCall]) -> list[KeptCall]:
    """The calls with MOST_CHARACTERS at most. Long texts are cut to one length, with a note in each."""
    texts = [text for call in calls for text in (*(m["content"] for m in call.request), call.reply or "")]
    most = MOST_CHARACTERS
    while sum(min(len(text), most) for text in texts) > MOST_CHARACTERS:
        most = most * 9 // 10

    def cut(text: str) -> str:
        return text if len(text) <= most else f"{text[:most]} [cut here: {len(text) - most:,} more characters]"

    return [
        call.model_copy(
            update={
                "request": [Message(role=one["role"], content=cut(one["content"])) for one in call.request],
                "reply": None if call.reply is None else cut(call.reply),
            }
        )
        for call in calls
    ]
