"""A rule-based stand-in for every judge, partner and environment of SOUL: `FakeOpenAI(answer)`.

    with FakeOpenAI(soul.examples.endpoint.answer) as fake:
        ...  # OPENAI_BASE_URL=fake.url bash run_rl.sh sotopia

On the command line, it runs for as long as another command does:

    soul examples endpoint soul evaluate hitom --data try policy.model=...

It rewards what the oracles of the examples do. It does not judge human behaviour, and its numbers mean nothing.
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
    """The endpoint's reply: that of the task's example, or else a critique or a partner's next turn."""
    for name in examples.names():
        reply = examples.load(name).reply(request)
        if reply is not None:
            return reply
    if "response_format" not in request.body:
        return Text(PARTNER)
    fields = schema_of(request)["properties"]
    return filled(request, 1.0, **({"critique": CRITIQUE} if "critique" in fields else {}))


class NoSuchCommand(SoulError):
    """The command to run with the stand-in cannot be started."""


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with the stand-in as its endpoint; return the command's exit code."""
    parser = Parser(prog="soul examples endpoint", description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    given = parser.parse_args(arguments)
    if not given.command:
        parser.error("name the command to run")
    with FakeOpenAI(answer) as fake:
        environment = {**os.environ, "OPENAI_BASE_URL": fake.url, "OPENAI_API_KEY": "stand-in"}
        try:
            return subprocess.run(given.command, env=environment, check=False).returncode
        except OSError as error:
            raise NoSuchCommand(f"{given.command[0]}: {error.strerror}. Name a program that can be run.") from None


if __name__ == "__main__":
    sys.exit(main())
