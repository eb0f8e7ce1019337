"""List the end of a turn in a checkpoint's generation_config.json, so that whatever serves it ends answers there.

A base model that is trained with a chat template often lists only its end of a document; a server would go on after the
end of the turn and invent the other side's turns.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from transformers import AutoTokenizer

from soul.chat.model_chat import stop_ids
from soul.chat.template_check import fit_template
from soul.errors import one_line

logger = logging.getLogger(__name__)


def write_end_tokens(step_dir: Path) -> None:
    """Add the token with which the chat template ends a turn to `eos_token_id`, unless it is listed already."""
    if not (step_dir / "tokenizer_config.json").exists():
        return
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(step_dir))
    except (OSError, ValueError) as error:  # a tokenizer with code of its own, which only its user may trust
        logger.warning("%s: the end tokens of generation_config.json stay as they are (%s)", step_dir, one_line(error))
        return
    if not tokenizer.chat_template:
        return
    listed = stop_ids(str(step_dir), False, tokenizer)
    added = fit_template(tokenizer, listed).added_stop_ids
    if not added:
        return
    file = step_dir / "generation_config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    config["eos_token_id"] = sorted({*listed, *added})
    file.write_text(json.dumps(config, indent=2) + "\n")
