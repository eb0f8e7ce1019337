"""Complete the chat files of a checkpoint, so that whatever serves it reads and writes the tokens of the training.

A base model that is trained with a chat template often lists only its end of a document; a server would go on after the
end of the turn and invent the other side's turns. A tokenizer may mark <answer> as special; a server would drop it.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from transformers import AutoTokenizer

from soul.chat.model_chat import stop_ids
from soul.chat.paired_tags import special_tags, unmark
from soul.chat.template_check import fit_template
from soul.errors import one_line

logger = logging.getLogger(__name__)


def complete_chat_files(step_dir: Path) -> None:
    """Add the token that ends a turn to `eos_token_id` in generation_config.json, and unmark special paired tags."""
    if not (step_dir / "tokenizer_config.json").exists():
        return
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(step_dir))
    except (OSError, ValueError) as error:  # a tokenizer with code of its own, which only its user may trust
        logger.warning("%s: generation_config.json and tokenizer stay as they are (%s)", step_dir, one_line(error))
        return
    if not tokenizer.chat_template:
        return
    listed = stop_ids(str(step_dir), False, tokenizer)
    found = fit_template(tokenizer, listed)
    if tags := special_tags(tokenizer, found.stop_ids):
        unmark(step_dir, tags)
    if not found.added_stop_ids:
        return
    file = step_dir / "generation_config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    config["eos_token_id"] = sorted({*listed, *found.added_stop_ids})
    file.write_text(json.dumps(config, indent=2) + "\n")
