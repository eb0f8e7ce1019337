"""Fill in a judge's answer schema: a number within each range, true or false, a short text.

A stand-in for a judge then needs to know only how good an answer is, not what the schema looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soul.testing.replies import ChatRequest, Json


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
