"""Parse `TASK=EXPERT` and `TASK:FILE=EXPERT`: which rows are answered, and by which model.

EXPERT is any model that can be evaluated: a hub id, a Hugging Face folder, a run or its global_step_N, a LoRA adapter,
or a model behind an API. For an API, write `endpoint:MODEL@URL#VARIABLE`; VARIABLE is the environment variable that
holds its key. Without FILE, the rows are those that `run_rl.sh TASK` trains on: TRAIN_FILES, or else the task's own
file under DATA_DIR.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from soul import tasks
from soul.errors import BadRow, BadSettings
from soul.judge import Endpoint
from soul.judge.roles import ROLES, policy_endpoint
from soul.tasks import TrainingSplit

SECTIONS = (*ROLES, "policy", "tasks")
# As in training, with a seed per sample. `policy.temperature=null` is for endpoints that accept no temperature.
SAMPLED = {"temperature": 1.0, "seed": 0}
_ENDPOINT = re.compile(r"endpoint:(?P<model>.+?)@(?P<url>https?://[^#]+)(?:#(?P<key>.+))?")


@dataclass(frozen=True)
class Expert:
    """A model and the rows that it answers.

    Attributes:
        name: as the user wrote it: a path, a hub id or an endpoint.
        sets: name of the set -> its parquet file. The name is the task's, or `TASK:STEM` if the user named the file.
    """

    name: str
    sets: Mapping[str, Path]

    @property
    def is_endpoint(self) -> bool:
        return self.name.startswith("endpoint:")

    def endpoint(self, own: Mapping[str, Any]) -> Endpoint:
        """Parse `endpoint:MODEL@URL#VARIABLE`; `own` holds the settings of the section `policy`."""
        match = _ENDPOINT.fullmatch(self.name)
        if match is None:  # do not repeat the name: it may contain a key by mistake
            raise BadSettings("Write an endpoint as endpoint:MODEL@URL#VARIABLE, with http:// or https:// in the URL.")
        address = {"model": match["model"], "base_url": match["url"], "api_key_env": match["key"] or "none"}
        endpoint = policy_endpoint({**SAMPLED, **own, **address})
        assert endpoint is not None  # a model is named
        return endpoint


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split command-line words into TASK=EXPERT and settings (section.key=value)."""
    odd = [word for word in words if "=" not in word.strip("=")]
    if odd:
        raise BadSettings(f"{odd[0]!r}: write TASK=EXPERT, TASK:FILE=EXPERT or section.key=value.")
    settings = [word for word in words if "." in word.partition("=")[0] and word.partition(".")[0] in SECTIONS]
    return [word for word in words if word not in settings], settings


def experts(words: Sequence[str], train_files: Sequence[str], data_dir: Path) -> list[Expert]:
    """The experts of a command line, each with all its tasks, in order of first mention.

    Args:
        train_files: TRAIN_FILES, which replace the tasks' own files.
    """
    sets: dict[str, dict[str, Path]] = {}
    for word in words:
        place, _, expert = word.partition("=")
        name, _, file = place.partition(":")
        launch = tasks.launch(name)
        if file:
            files = {f"{name}:{Path(file).stem}": Path(file)}
        elif train_files:
            files = _matching(name, launch, train_files)
        else:
            files = {name: data_dir / "sim_rl_data" / f"{launch.train}.parquet"}
        expert_sets = sets.setdefault(expert, {})
        for key, path in files.items():
            if key in expert_sets:
                raise BadSettings(f"{word}: {expert} has the rows {key} already. Rename a file, or drop one of them.")
            _check(path, launch)
            expert_sets[key] = path
    return [Expert(name, expert_sets) for name, expert_sets in sets.items()]


def task_of(name: str) -> str:
    """The task of a set."""
    return name.partition(":")[0]


def _matching(name: str, launch: TrainingSplit, train_files: Sequence[str]) -> dict[str, Path]:
    """The files of TRAIN_FILES that hold the task's rows."""
    own = [Path(file) for file in train_files if launch.task in _tasks_in(Path(file))]
    if not own:
        raise BadSettings(f"None of TRAIN_FILES holds rows of {name} (data_source {launch.task}). Name its file too.")
    return {name if len(own) == 1 else f"{name}:{path.stem}": path for path in own}


def _check(path: Path, launch: TrainingSplit) -> None:
    names = _tasks_in(path)
    if names != {launch.task}:
        raise BadSettings(
            f"{path} holds rows of {', '.join(sorted(names))}, not of {launch.task} alone. Name another task or file."
        )


def _tasks_in(path: Path) -> set[str]:
    """The tasks of a file, read from its column `data_source`."""
    if not path.is_file():
        raise BadRow(f"{path}: there is no such file. Set DATA_DIR or TRAIN_FILES, or name the file: TASK:FILE=EXPERT.")
    try:
        column = pq.read_table(path, columns=["data_source"]).column("data_source")
    except (pa.ArrowException, OSError, KeyError) as error:
        raise BadRow(
            f"{path} is not a parquet file with a column data_source ({error}). See python -m data.<task>."
        ) from None
    return {str(name) for name in column.unique().to_pylist()}
