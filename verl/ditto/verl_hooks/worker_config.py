"""Resolve everything in the config that depends on the environment or the working directory, before workers get it.

A worker of a running Ray cluster has the environment and the working directory of `ray start`. So the driver resolves
the judge gateway once, with its own environment, and makes paths absolute. API keys are not in the config; only
the run's judge actor has them (`judging/actor.py`).
"""

import os
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from ditto.model.expert_checkpoints import resolve_teachers
from ditto.settings import Settings
from soul.judge import ROLES

_NEW_FOLDER = re.compile(r"(^|_)dir$|^save_path$")  # keys of a folder that the run creates
_PATH = re.compile(r"(^|_)(path|files?)$")  # names of keys that hold a path, a hub id or a module


def resolve(config: DictConfig) -> None:
    """Replace the sections of the judge roles by `gateway`, relative paths by absolute ones, and a teacher's run folder
    by its latest checkpoint; take the model out of checkpoints of the adapter alone."""
    settings = Settings.from_config(config)
    gateway = settings.gateway.resolved()
    with open_dict(config):
        config.algorithm.distill.teachers = resolve_teachers(settings.options.distill.teachers)
        for role in ROLES:
            config.pop(role, None)
        config.gateway = gateway.model_dump(mode="json")
    for name in ("train_files", "val_files"):  # lists, which `SoulDataset` can tell apart even if they are equal
        if isinstance(config.data[name], str):
            config.data[name] = [config.data[name]]
    saved = config.actor_rollout_ref.actor.checkpoint
    if saved.save_lora_only:  # the model would be whole in hf_model
        saved.save_contents = [part for part in saved.save_contents if part != "hf_model"]
    plain = OmegaConf.to_container(config, resolve=True)
    for key, path in _relative_paths(plain):
        OmegaConf.update(config, key, path)


def _relative_paths(node: Any, key: str = "", name: str = "") -> list[tuple[str, str]]:
    """The dotted key and the absolute path of every relative path at or below this node."""
    if isinstance(node, dict):
        return [
            item
            for child, value in node.items()
            for item in _relative_paths(value, f"{key}.{child}" if key else str(child), str(child))
        ]
    if isinstance(node, list):
        return [item for i, value in enumerate(node) for item in _relative_paths(value, f"{key}[{i}]", name)]
    if not isinstance(node, str) or not node or node.startswith(("/", "~")) or "://" in node:
        return []
    if _NEW_FOLDER.search(name) or (_PATH.search(name) and Path(node).exists()):
        return [(key, os.path.abspath(node))]
    return []
