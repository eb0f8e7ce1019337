"""The lengths of prompt, feedback and answer that a config leaves open: the paper's, or less in a shorter context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

LENGTHS = {"max_prompt_length": 8192, "max_feedback_length": 1024, "max_response_length": 8192}  # the paper's
STEP = 64  # a shortened length is a multiple of it


def fill_lengths(config: DictConfig) -> None:
    """Replace each null among the lengths of an RL config, which is not resolved yet.

    The lengths that are given stay. The others share what is left of the model's context in the paper's proportions.
    """
    if "actor_rollout_ref" not in config:
        return
    given = {name: OmegaConf.select(config, f"data.{name}", throw_on_missing=False) for name in LENGTHS}
    wanted = {name: LENGTHS[name] for name, value in given.items() if value is None}
    positions = _positions(OmegaConf.select(config, "actor_rollout_ref.model.path", throw_on_missing=False))
    numbers = [value for value in given.values() if isinstance(value, int)]
    rest = positions - sum(numbers) if positions else sum(wanted.values())
    total = sum(wanted.values())
    for name, length in wanted.items():
        shorter = rest * length // max(total, 1) // STEP * STEP
        # Without room, the paper's length stays, and the check of the model's context says what to lower.
        OmegaConf.update(config, f"data.{name}", length if rest >= total or shorter < STEP else shorter)


def _positions(path: Any) -> int | None:
    """The context of the model in a folder, in tokens; None if it cannot be read there."""
    file = Path(str(path)).expanduser() / "config.json"
    try:
        model = json.loads(file.read_text(encoding="utf-8"))
        limit = (model.get("text_config") or model).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None  # a damaged folder is reported when the tokenizer is loaded
    return limit if isinstance(limit, int) and limit > 0 else None
