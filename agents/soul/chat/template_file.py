"""The chat template that a setting names: a file, or one of ours that suits training better than the model's own."""

import json
import re
from collections.abc import Collection
from pathlib import Path

from soul.chat.template_check import BadTemplate

TEMPLATE = "chat_template.jinja"  # the name of the file that transformers writes and reads
SHIPPED = Path(__file__).parent / "shipped"
_SPECIAL = re.compile(r"<\|\w+\|>|</?think>")  # what a shipped template needs as tokens of the model


def shipped() -> list[str]:
    """The names of our templates."""
    return sorted(path.stem for path in SHIPPED.glob("*.jinja"))


def read_template(value: str, setting: str, vocabulary: Collection[str]) -> str:
    """The text of a template, by the name of ours or the path of a file; `setting` has this value, for messages.

    Raises:
        BadTemplate: there is neither, the file is empty or no text, or one of ours is for another family of models.
    """
    path = SHIPPED / f"{value}.jinja" if value in shipped() else Path(value)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTemplate(
            f"{setting}={value}: neither a file with a Jinja template ({error}) nor one of ours: "
            f"{', '.join(shipped())}."
        ) from error
    if not text.strip():
        raise BadTemplate(f"{setting}={value}: the file is empty.")
    lacking = sorted({token for token in _SPECIAL.findall(text) if token not in vocabulary})
    if value in shipped() and lacking:
        raise BadTemplate(
            f"{setting}={value}: it is for another family of models: this tokenizer has no token "
            f"{', '.join(lacking)}. Leave it null for the model's own template, or pass the path of a file."
        )
    return text


def saved_template(folder: Path) -> str | None:
    """The chat template in a folder, as transformers saves it, also beside a LoRA adapter; None if there is none."""
    file, config = folder / TEMPLATE, folder / "tokenizer_config.json"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    said = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    template = said.get("chat_template")  # before transformers 5
    return template if isinstance(template, str) else None
