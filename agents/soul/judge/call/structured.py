"""A pydantic model as the form of an answer: how it is asked for, and how the answer is read. Strictly.

Three ways to ask, from the best an endpoint can do downwards: `json_schema` (the server enforces the schema),
`json_object` (it enforces JSON; the schema stands in the prompt) and `prompt` (the schema stands in the prompt).
However it was asked, the text is read the same way: one JSON object alone, no key twice, no NaN or infinity, numbers
that are numbers, every bound kept. What does not fit is a failure to ask about once more, never a value to repair.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any, TypeVar

import openai
from pydantic import BaseModel, ValidationError

from soul.errors import JudgeFailure
from soul.judge.call.endpoint import StructuredMode
from soul.judge.call.untrusted import neutral

SchemaT = TypeVar("SchemaT", bound=BaseModel)
# Chat templates may open the thoughts in the prompt. An answer that begins as an object has none before it: the closing
# tag further down is a word in its texts.
_THOUGHTS = re.compile(r"(?!\{|```).*?</think>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)```", re.DOTALL | re.IGNORECASE)
_QUOTED = "; the answer begins "  # what follows it in a failure's detail is for people, and never sent


@cache
def json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema that is sent: the SDK's own strict form, every object closed, every property required.

    Raises:
        TypeError: a number of the schema has a default, so that a missing score would pass for one.
    """
    _refuse_defaults(schema)
    strict = dict(openai.pydantic_function_tool(schema)["function"]["parameters"])
    _drop_defaults(strict)
    return strict


def _drop_defaults(part: Any) -> None:
    """What is required has no default, and OpenAI answers 400 to one."""
    if isinstance(part, dict):
        for field in part.get("properties", {}).values():
            if isinstance(field, dict):
                field.pop("default", None)
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _drop_defaults(inner)


def _refuse_defaults(schema: type[BaseModel]) -> None:
    whole = schema.model_json_schema()
    for part in [whole, *whole.get("$defs", {}).values()]:
        for name, field in part.get("properties", {}).items():
            kinds = {field.get("type"), *(option.get("type") for option in field.get("anyOf", []))}
            # The schema shows no default that a factory makes.
            made = "default" not in field and name not in part.get("required", ())
            if _holds_number(field.get("default")) or (made and kinds & {"number", "integer", "boolean"}):
                raise TypeError(
                    f"{part.get('title', schema.__name__)}.{name} has a default: a judge that leaves it out would be "
                    "given a score that it never gave. Remove the default."
                )


def _holds_number(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float)  # a boolean too


def response_format(schema: type[BaseModel], mode: StructuredMode) -> dict[str, Any] | None:
    """The request's `response_format`; None where the endpoint knows none."""
    if mode == "json_schema":
        form = {"name": schema.__name__, "strict": True, "schema": json_schema(schema)}
        return {"type": "json_schema", "json_schema": form}
    return {"type": "json_object"} if mode == "json_object" else None


def instructions_with_schema(instructions: str, schema: type[BaseModel], mode: StructuredMode) -> str:
    """The system message: where the server does not enforce the schema, it must say it."""
    if mode == "json_schema":
        return instructions
    text = json.dumps(json_schema(schema), ensure_ascii=False)
    return f"{instructions}\n\nAnswer with one JSON object and nothing else. It must satisfy this JSON schema:\n{text}"


def complaint(schema: type[BaseModel], failure: JudgeFailure) -> str:
    """What a re-ask adds to the question. It repeats the schema: some servers take the form and ignore it. It does not
    repeat the answer, which may hold what the policy wrote: here it would stand outside of the data."""
    problem = f": {neutral(failure.detail.partition(_QUOTED)[0])}" if failure.cause == "invalid" else ""
    text = json.dumps(json_schema(schema), ensure_ascii=False)
    return (
        f"\n\nYour last answer was not usable{problem}\nAnswer again, with one JSON object and nothing else. It must "
        f"satisfy this JSON schema:\n{text}"
    )


def valid_text(schema: type[BaseModel], text: str) -> str:
    """The JSON object in an answer's text, once it has been found to satisfy the schema.

    Raises:
        JudgeFailure: `invalid`; the detail says what is wrong in the words of a validation error.
    """
    candidate = _bare(text)
    try:
        _decode(candidate)
        instance(schema, candidate)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'answer'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise JudgeFailure("invalid", problems) from None
    except (ValueError, RecursionError) as error:
        raise JudgeFailure("invalid", f"not one JSON object: {error}{_QUOTED}{candidate[:80]!r}") from None
    return candidate


def instance(schema: type[SchemaT], valid: str) -> SchemaT:
    """The instance. Strict: true is no number and "7" is none either; an integer may stand for a float."""
    return schema.model_validate_json(valid, strict=True)


def _decode(text: str) -> Any:
    return json.loads(
        text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_finite
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError("a key stands twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _bare(text: str) -> str:
    """The answer without thoughts before it and without one code fence around it. What is left must be the object.

    Objects inside other text are not looked for: a judge that quotes a forged verdict would be taken at its quote.
    """
    bare = text.strip()
    if thoughts := _THOUGHTS.match(bare):
        bare = bare[thoughts.end() :].strip()
    fenced = _FENCE.fullmatch(bare)
    return fenced.group(1).strip() if fenced else bare
