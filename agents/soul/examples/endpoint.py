"""A rule-based stand-in for every judge, partner and environment of SOUL: `FakeOpenAI(answer)`.

    with FakeOpenAI(soul.examples.endpoint.answer) as fake:
        ...  # OPENAI_BASE_URL=fake.url bash run_rl.sh sotopia

On the command line, it runs for as long as another command does:

    soul examples endpoint soul evaluate hitom --data try policy.model=...

It rewards what the oracles of the examples do. It does not judge human behaviour, and its numbers mean nothing.
"""

import argparse
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from soul import examples
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError
from soul.testing.replies import ChatRequest, Json, Reply, Text
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


def schema_of(request: ChatRequest) -> dict[str, Any]:
    """The JSON schema that the request asks for.

    Raises:
        ValueError: it asks for none. Set `structured` of the endpoint to json_schema or auto.
    """
    form = request.body.get("response_format") or {}
    if form.get("type") != "json_schema":
        raise ValueError(f"the request asks for {form.get('type', 'no format')}, not for a JSON schema")
    return dict(form["json_schema"]["schema"])


def filled(request: ChatRequest, quality: float, **fields: Any) -> Json:
    """An answer that fits the request's schema.

    Args:
        quality: from 0 (every number at the low end of its range) to 1 (at the high end).
        fields: values of top-level fields; the others are made up.
    """
    schema = schema_of(request)
    properties = schema["properties"]
    unknown = sorted(set(fields) - set(properties))
    if unknown:
        raise ValueError(f"the schema has no field {unknown[0]!r}; it has {', '.join(properties)}")
    values = {name: _value(part, schema, quality) for name, part in properties.items() if name not in fields}
    return Json({name: fields.get(name, values.get(name)) for name in properties})


def _value(part: Mapping[str, Any], whole: Mapping[str, Any], quality: float) -> Any:
    if "$ref" in part:
        return _value(whole["$defs"][part["$ref"].rsplit("/", 1)[-1]], whole, quality)
    if "enum" in part or "const" in part:
        return part.get("const", part.get("enum", [None])[0])
    for choice in ("anyOf", "allOf", "oneOf"):
        if choice in part:
            return _value(part[choice][0], whole, quality)
    kind = part["type"]
    if kind == "object":
        return {name: _value(inner, whole, quality) for name, inner in part.get("properties", {}).items()}
    if kind == "array":
        return [_value(part["items"], whole, quality) for _ in range(part.get("minItems", 0))]
    if kind in ("number", "integer"):
        low, high = part["minimum"], part["maximum"]
        value = low + quality * (high - low)
        return round(value) if kind == "integer" else value
    return quality >= 0.5 if kind == "boolean" else f"Worth {quality:.2f} of what could be had."


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
