"""run.json: what a run is, for people and for the viewer.

    {"schema_version": 1, "objective": "ditto", "task": "sotopia", "started": 1795460000.0,
     "resumed": [{"step": 40, "time": 1795470000.0}], "versions": {"torch": "2.8.0", ...}, "seed": 1, "hosts": 2,
     "config": {...}, "data_cards": [{"split": "train", "name": "sotopia.parquet", "rows": 1024, ...}]}

The driver writes it at every start, and so does supervised fine-tuning (objective "sft"). A resumed run keeps `started`
and adds to `resumed`; everything else is that of the last start. `config` is the resolved config without keys. A start
of RL that resumes is compared with it (`config_checks/resume.py`).
"""

import json
import logging
import platform
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from omegaconf import DictConfig, OmegaConf

from ditto.launching.override_parser import is_secret_name
from ditto.run import checkpoint
from ditto.run.manifest import sha256_of
from ditto.settings import Settings
from soul.cli.redaction import BLANK, redact_guessing
from soul.errors import SoulError
from soul.files.json_object import read_object
from soul.files.whole_file import write_whole

logger = logging.getLogger(__name__)

FILE = "run.json"
SCHEMA = 1
HASHED_BYTES = 2**28  # larger data files have no hash: they would take longer than a second


def write(config: DictConfig, hosts: int) -> None:
    """Write run.json into the run folder, for a config that is resolved for the workers, on so many hosts."""
    settings, folder = Settings.from_config(config), config.trainer.resume_from_path
    content = described(config)
    tasks = {task for card in content["data_cards"] if card["split"] == "train" for task in card["tasks"]}
    facts = {"objective": settings.objective.name, "task": ",".join(sorted(tasks)), "seed": config.data.seed}
    write_facts(settings.run_dir, checkpoint.step_of(Path(folder)) if folder else 0, facts | content | {"hosts": hosts})


def write_facts(run_dir: Path, after: int, facts: Mapping[str, Any]) -> None:
    """Write these facts of a start that goes on after this step (0: a new run) beside when it started and resumed."""
    path, now = run_dir / FILE, time.time()
    last = earlier(path) if after else {}
    resumed = [*last.get("resumed", []), {"step": after, "time": now}] if after else []
    times = {"started": last.get("started", now), "resumed": resumed}
    content = {"schema_version": SCHEMA, **times, "versions": dict(versions()), **facts}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=1, default=str) + "\n")


def described(config: DictConfig) -> dict[str, Any]:
    """The config of the workers without keys, and the cards of the data files."""
    return {"config": shown(config), "data_cards": list(data_cards(config))}


def shown(config: DictConfig) -> dict[str, Any]:
    """The resolved config without keys, as JSON."""
    return dict(json.loads(json.dumps(_without_keys(OmegaConf.to_container(config, resolve=True)), default=str)))


def earlier(path: Path) -> dict[str, Any]:
    """The object that the run's last start wrote; {} if there is none or it is damaged."""
    content = (_json_object(path) if path.exists() else None) or {}
    return content if content.get("schema_version") == SCHEMA else {}


def versions() -> Iterator[tuple[str, str]]:
    """The versions of Python and of the packages that are installed."""
    yield "python", platform.python_version()
    yield "ditto", version("ditto-soul")
    for package in ("verl", "torch", "vllm", "ray", "transformers", "peft"):
        try:
            yield package, version(package)
        except PackageNotFoundError:  # vllm is not part of every install
            continue


def _without_keys(value: Any, name: str = "") -> Any:
    """A config without what is or looks like a key or a password."""
    if isinstance(value, dict):
        return {key: _without_keys(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_keys(item, name) for item in value]
    if not isinstance(value, str):
        return value
    return BLANK if value and is_secret_name(name) else redact_guessing(value)


def data_cards(config: DictConfig) -> Iterator[dict[str, Any]]:
    """A card of each training and validation file: its name, rows by task, identity, and its builder's card beside it.

    `sha256` is null for a file above HASHED_BYTES; `card` is the object in `<file>.card.json`, null without one.
    """
    for split in ("train", "val"):
        files = config.data[f"{split}_files"]
        for file in map(Path, [files] if isinstance(files, str) else files):
            column = pq.read_table(file, columns=["data_source"])["data_source"]
            status, card = file.stat(), file.with_name(f"{file.name}.card.json")
            yield {
                "split": split,
                "name": file.name,
                "file": str(file),
                "rows": len(column),
                "tasks": dict(sorted((each["values"], each["counts"]) for each in column.value_counts().to_pylist())),
                "bytes": status.st_size,
                "modified": status.st_mtime,
                "sha256": sha256_of(file) if status.st_size <= HASHED_BYTES else None,
                "card": _json_object(card) if card.exists() else None,
            }


def _json_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None and a warning if there is none."""
    try:
        return read_object(path, SoulError, f"It is left out of {FILE}.")
    except (OSError, SoulError) as error:
        logger.warning("%s", error)
        return None
