"""The chat template of a training: the model's own, a file, or one of ours that suits training better.

It is the only one of a run: the corpus is tokenised with it, the checkpoint carries it, and whatever serves the
checkpoint uses it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from soul.errors import SoulError

SHIPPED = Path(__file__).parents[1] / "chat_templates"
_SPECIAL = re.compile(r"<\|\w+\|>|</?think>")  # what a shipped template needs as tokens of the model


class BadTemplate(SoulError):
    """The setting model.chat_template names no template that works with the model."""


def shipped() -> list[str]:
    """The names of our templates."""
    return sorted(path.stem for path in SHIPPED.glob("*.jinja"))


def use_template(tokenizer: Any, setting: str | None) -> None:
    """Give a tokenizer or processor the template that `model.chat_template` names; null leaves the model's own.

    Raises:
        BadTemplate: there is no such template, or one of ours is for another family of models.
    """
    if setting is None:
        return
    text = read_template(setting)
    if setting in shipped():
        vocabulary = getattr(tokenizer, "tokenizer", tokenizer).get_vocab()
        lacking = sorted({token for token in _SPECIAL.findall(text) if token not in vocabulary})
        if lacking:
            raise BadTemplate(
                f"model.chat_template={setting}: it is for another family of models: this tokenizer has no token "
                f"{', '.join(lacking)}. Leave it null for the model's own template, or name a file."
            )
    tokenizer.chat_template = text


def read_template(setting: str) -> str:
    """The text of a template, by the name of ours or the path of a file.

    Raises:
        BadTemplate: there is neither, or the file is empty or no text.
    """
    path = SHIPPED / f"{setting}.jinja" if setting in shipped() else Path(setting)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTemplate(
            f"model.chat_template={setting}: neither a file with a Jinja template ({error}) nor one of ours: "
            f"{', '.join(shipped())}."
        ) from error
    if not text.strip():
        raise BadTemplate(f"model.chat_template={setting}: the file is empty.")
    return text
