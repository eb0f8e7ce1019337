"""A stand-in for every judge, partner and environment of SOUL, by rule: `FakeOpenAI(answer)`.

    with FakeOpenAI(soul.examples.endpoint.answer) as fake:
        ...  # OPENAI_BASE_URL=fake.url bash run_rl.sh sotopia

On a command line it stands in for as long as a command runs:

    soul examples endpoint soul evaluate hitom --data try policy.model=...

It rewards what the examples' oracles do. It is no judge of human behaviour, and no number of it means anything.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from soul import examples
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError
from soul.examples.filled import filled, schema_of
from soul.testing.replies import ChatRequest, Reply, Text
from soul.testing.server import FakeOpenAI

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


class NoSuchCommand(SoulError):
    """The command that the stand-in was to stand in for cannot be run."""


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command that finds its judge here. Returns its exit code."""
    parser = Parser(prog="soul examples endpoint", description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    given = parser.parse_args(arguments)
    if not given.command:
        parser.error("name the command that is to run")
    with FakeOpenAI(answer) as fake:
        environment = {**os.environ, "OPENAI_BASE_URL": fake.url, "OPENAI_API_KEY": "stand-in"}
        try:
            return subprocess.run(given.command, env=environment, check=False).returncode
        except OSError as error:
            raise NoSuchCommand(f"{given.command[0]}: {error.strerror}. Name a program that can be run.") from None


if __name__ == "__main__":
    sys.exit(main())
