"""The fields of a source's record: texts, lists and options, with errors that name the record and the field."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from soul.row_fields import clean_text, gold_letter, option_texts, options_by_letter


def required_text(where: str, record: Mapping[str, Any], field: str, hint: str = "") -> str:
    """The text of a field, without surrounding white space.

    Raises:
        ValueError: it is missing, no text, or blank.
    """
    value = record.get(field)
    text = clean_text(value) if isinstance(value, str) else ""
    if not text:
        raise ValueError(f"{where}: field '{field}' is missing or empty{hint}")
    return text


def text_list(where: str, record: Mapping[str, Any], field: str) -> list[str]:
    """The list of texts that a field holds as a Python literal, which is never run as code.

    Raises:
        ValueError: it is no such list, or an empty one.
    """
    text = record.get(field) or ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{where}: field '{field}' is not a Python list of strings: {error}") from error
    if not (isinstance(value, list) and value and all(isinstance(item, str) for item in value)):
        raise ValueError(f"{where}: field '{field}' must be a non-empty list of strings, got {text!r:.80}")
    return value


def options_and_gold(where: str, options: Any, answer: Any, fields: str) -> tuple[list[str], str]:
    """The texts of the options without letters, and the letter of the right one.

    Args:
        fields: how the error names the fields of both.

    Raises:
        ValueError: there are fewer than two options, or the answer is not among them.
    """
    try:
        texts = option_texts(options)
        return texts, gold_letter(answer, options_by_letter(texts))
    except ValueError as error:
        raise ValueError(f"{where}: {fields}: {error}") from error
