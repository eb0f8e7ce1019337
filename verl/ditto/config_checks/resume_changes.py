"""Compare a run that resumes with its last start, which `run.json` describes.

refused     what the checkpoint's weights belong to: the model, the adapter, the kind of optimizer
accepted    the objective, and what decides which rows a step trains, with `trainer.resume_changed=true`
applied     optimizer settings: they hold from the next step on (`ditto/model/engine.py`)
shown       everything else
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ditto.config_checks.key_types import covering, leaves
from ditto.config_checks.keys import OUTSIDE, RL_KEYS
from ditto.run import run_json
from ditto.settings import BadConfig, chosen_objective
from ditto.verl_hooks.worker_config import resolve

logger = logging.getLogger(__name__)
SHOWN = 6  # differences in a line, at most
_MODEL, _OPTIMIZER = "actor_rollout_ref.model", "actor_rollout_ref.actor.optim"
_ADAPTER = tuple(f"{_MODEL}.{name}" for name in ("target_modules", "exclude_modules", "lora_adapter_path"))
_KEPT = (f"{_MODEL}.path", *_ADAPTER, f"{_OPTIMIZER}.optimizer", f"{_OPTIMIZER}.optimizer_impl")
_TOLD = (*_KEPT, "algorithm.objective", "algorithm.agent_version")
_PLACES = (f"{_MODEL}.path", f"{_MODEL}.lora_adapter_path")  # other machines keep them elsewhere: names are compared
_ORDER = (
    *("data.train_batch_size", "data.seed", "data.shuffle", "data.train_max_samples", "data.max_prompt_length"),
    *("data.filter_overlong_prompts", "data.mixture"),
)
_FILES = ("data.train_files", "data.val_files")  # their contents are compared, or nothing depends on them
_OF_A_START = ("run.dir", "trainer.default_local_dir", "trainer.resume_", "dry_run", *_FILES)


def check_changes(config: DictConfig, folder: Path | None) -> list[str]:
    """Compare a config with that of the checkpoint's run.

    Args:
        config: composed, and not yet resolved for the workers.
        folder: the checkpoint that the run resumes from; None: there is none.

    Returns:
        Lines for the plan: where the run resumes, and the differences.

    Raises:
        BadConfig: a difference is refused, or needs `trainer.resume_changed=true`.
    """
    if folder is None:
        return []
    lines = [f"after {folder}"]
    before = run_json.earlier(folder.parent / run_json.FILE) or run_json.earlier(Path(config.run.dir) / run_json.FILE)
    if not before:
        logger.warning("%s has no %s beside it: the run's settings are not compared", folder, run_json.FILE)
        return lines
    settled = config.copy()
    resolve(settled)
    now = run_json.described(settled)
    changes = dict(_changes(before["config"], now["config"]))
    kept = [text for key, text in changes.items() if key in _KEPT and (key not in _ADAPTER or _has_adapter(config))]
    if kept:
        raise BadConfig(
            f"{folder} was trained with other settings: {_listed(kept)}. Its weights and its optimizer belong to "
            "those, so a resumed run cannot change them. Undo the change, or start a new run from its weights with "
            "another EXPERIMENT_NAME."
        )
    order = [text for key, text in changes.items() if f"{key}.".startswith(tuple(f"{each}." for each in _ORDER))]
    order += _changed_files(before["data_cards"], now["data_cards"])
    objective = chosen_objective(config.algorithm).name
    if before["objective"] != objective:
        order.insert(0, f"algorithm.objective was {before['objective']} and is {objective}")
    if order and not config.trainer.resume_changed:
        raise BadConfig(
            f"{folder} was trained with another objective or on other rows: {_listed(order)}. Its position belongs to "
            "the order of its rows, so with others a resumed run would repeat some and never see others. Undo the "
            "change, or go on with it with trainer.resume_changed=true."
        )
    applied = [text for key, text in changes.items() if key.startswith(f"{_OPTIMIZER}.")]
    other = [text for key, text in changes.items() if text not in (*order, *applied) and key not in _TOLD]
    lines += [f"CHANGED (trainer.resume_changed=true): {_listed(order)}"] if order else []
    lines += [f"from the next step on: {_listed(applied)}"] if applied else []
    return lines + ([f"other than before: {_listed(other)}"] if other else [])


def _has_adapter(config: DictConfig) -> bool:
    return bool(config.actor_rollout_ref.model.lora_rank)


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and description of each difference between two configs."""
    old, new = dict(leaves(before)), dict(leaves(now))
    for key in {**old, **new}:
        read = key.startswith("gateway.") or covering(key, RL_KEYS)  # the gateway: the resolved sections of the roles
        if not read or key.startswith((*_OF_A_START, *OUTSIDE)):
            continue
        values = [json.dumps(values.get(key), ensure_ascii=False) for values in (old, new)]
        if key in _PLACES and len({Path(value.strip('"')).name for value in values}) == 1:
            continue
        if values[0] != values[1]:
            yield key, f"{key} was {values[0]} and is {values[1]}"


def _changed_files(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[str]:
    """The difference between the training files, by their contents: a file may have moved."""
    old, new = ([card for card in cards if card["split"] == "train"] for cards in (before, now))
    if [_identity(card) for card in old] != [_identity(card) for card in new]:
        names = [", ".join(f"{card['name']} ({card['rows']:,} rows)" for card in cards) for cards in (old, new)]
        yield f"data.train_files were {names[0]} and are {names[1]}" + (" of other contents" * (names[0] == names[1]))


def _identity(card: dict[str, Any]) -> Any:
    return card["sha256"] or (card["name"], card["bytes"])


def _listed(changes: list[str]) -> str:
    more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return "; ".join(changes[:SHOWN]) + more
