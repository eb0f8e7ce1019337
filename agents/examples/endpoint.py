"""A stand-in for every judge, partner and environment of SOUL, by rule: `FakeOpenAI(answer)`.

    with FakeOpenAI(agents.examples.endpoint.answer) as fake:
        ...  # OPENAI_BASE_URL=fake.url bash run_rl.sh sotopia

It rewards what the examples' oracles do. It is no judge of human behaviour, and no number of it means anything.
"""

from __future__ import annotations

from agents import examples
from agents.examples.filled import filled, schema_of
from agents.testing.replies import ChatRequest, Reply, Text

CRITIQUE = "Read the whole situation again, weigh each possibility against it, and settle on the one that fits best."
PARTNER = "I see what you mean. Tell me more about it."


def answer(request: ChatRequest) -> Reply:
    """What the endpoint says: what the task's example says to it, else a critique, or a partner's next turn."""
    for name in examples.names():
        reply = examples.load(name).reply(request)
        if reply is not None:
            return reply
    if "response_format" not in request.body:
        return Text(PARTNER)
    fields = schema_of(request)["properties"]
    return filled(request, 1.0, **({"critique": CRITIQUE} if "critique" in fields else {}))
