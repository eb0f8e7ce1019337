"""Ask for an answer that fits a pydantic model, and validate the answer strictly.

There are three modes, best first: `json_schema` (the server enforces the schema), `json_object` (the server enforces
JSON, the prompt states the schema) and `prompt` (the prompt states the schema). The answer is read the same way in all
of them: exactly one JSON object, no duplicate keys, no NaN or infinity, no strings for numbers, all bounds respected.
An answer that does not fit is asked for again. It is never repaired.
"""

import json
import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import openai
from pydantic import BaseModel, ValidationError

from soul.answers.thinking import after_thinking
from soul.errors import JudgeFailure
from soul.judge.call.endpoint import StructuredMode
from soul.judge.call.untrusted import neutral

SchemaT = TypeVar("SchemaT", bound=BaseModel)
_FENCE = re.compile(r"```(?:json)?\s*+(.*)```", re.DOTALL | re.IGNORECASE)
_LENGTHS = ("minLength", "maxLength")
_QUOTED = "; the answer begins "  # the text after this in a failure's detail is for logs and never sent to a model


@cache
def json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema to send: the SDK's strict form, which closes every object and requires every property."""
    whole = schema.model_json_schema()
    for part in [whole, *whole.get("$defs", {}).values()]:
        for name, field in part.get("properties", {}).items():
            kinds = {field.get("type"), *(option.get("type") for option in field.get("anyOf", []))}
            # A default from a factory is not in the schema, but the field is not required.
            has_factory = "default" not in field and name not in part.get("required", ())
            if _holds_number(field.get("default")) or (has_factory and kinds & {"number", "integer", "boolean"}):
                raise TypeError(
                    f"{part.get('title', schema.__name__)}.{name} has a default, which would count as the judge's "
                    "score if the judge leaves the field out. Remove the default."
                )
    strict: dict[str, Any] = openai.pydantic_function_tool(schema)["function"]["parameters"]
    return _without(("default",), strict)


def _holds_number(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float)  # true for booleans too, which is intended


def _without(keywords: Sequence[str], part: Any) -> Any:
    """A copy of a schema without these keywords, which OpenAI answers with 400 in its strict form.

    A property may be called like a keyword, so the names of properties are kept.
    """
    if isinstance(part, list):
        return [_without(keywords, inner) for inner in part]
    if not isinstance(part, dict):
        return part
    return {
        key: {name: _without(keywords, inner) for name, inner in value.items()}
        if key in ("properties", "$defs")
        else _without(keywords, value)
        for key, value in part.items()
        if key not in keywords
    }


class Form(NamedTuple):
    """A schema as plain data, which can be sent to another process."""

    name: str
    schema: dict[str, Any]  # the strict schema, for prompts
    sent: dict[str, Any]  # the schema as endpoints accept it: without lengths of strings


@cache
def form_of(schema: type[BaseModel]) -> Form:
    """The form of an answer that fits the schema; see `json_schema`."""
    strict = json_schema(schema)
    return Form(schema.__name__, strict, _without(_LENGTHS, strict))


def response_format(form: Form, mode: StructuredMode) -> dict[str, Any] | None:
    """The request's `response_format`; None in the mode `prompt`."""
    if mode == "json_schema":
        return {"type": "json_schema", "json_schema": {"name": form.name, "strict": True, "schema": form.sent}}
    return {"type": "json_object"} if mode == "json_object" else None


def instructions_with_schema(instructions: str, form: Form, mode: StructuredMode) -> str:
    """The system message. It states the schema, unless the server enforces it."""
    if mode == "json_schema":
        return instructions
    text = json.dumps(form.schema, ensure_ascii=False)
    return (
        f"{instructions}\n\nReply with a single JSON object and nothing else. It must match this JSON schema:\n{text}"
    )


def complaint(schema: type[BaseModel], failure: JudgeFailure) -> str:
    """The text that is added to the question when it is asked again.

    It repeats the schema, because some servers accept `response_format` and ignore it. It does not quote the answer,
    which may contain text of the policy: here that text would be outside the data block.
    """
    problem = f": {neutral(failure.detail.partition(_QUOTED)[0])}" if failure.cause == "invalid" else ""
    text = json.dumps(json_schema(schema), ensure_ascii=False)
    return (
        f"\n\nYour previous reply could not be used{problem}\nReply again with a single JSON object and nothing else. "
        f"It must match this JSON schema:\n{text}"
    )


def read(schema: type[SchemaT], text: str) -> SchemaT:
    """The instance in an answer's text, validated strictly.

    Neither true nor "7" is a number, but an integer may stand for a float.
    """
    candidate = _bare(text)
    try:
        json.loads(
            candidate, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_finite
        )
        return schema.model_validate_json(candidate, strict=True)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'answer'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise JudgeFailure("invalid", problems) from None
    except (ValueError, RecursionError) as error:
        raise JudgeFailure("invalid", f"not a single JSON object: {error}{_QUOTED}{candidate[:80]!r}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(values := dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice in one object")
    return values


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError("a number is too large")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _bare(text: str) -> str:
    """The answer without thoughts before it and without a code fence around it. The rest must be the object.

    Objects inside other text are ignored: the judge may be quoting a verdict that the policy forged.
    """
    bare = text.strip()
    if not bare.startswith(("{", "```")):  # otherwise there are no thoughts before it, and a tag is part of a string
        bare = after_thinking(bare).strip()
    fenced = _FENCE.fullmatch(bare)
    return fenced.group(1).strip() if fenced else bare
