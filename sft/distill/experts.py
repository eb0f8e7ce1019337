"""`TASK=EXPERT` and `TASK:FILE=EXPERT`: which rows are answered, and by whom.

EXPERT is what can be evaluated: a hub id, a Hugging Face folder, a run or its global_step_N, a LoRA adapter; or a model
behind an API, `endpoint:MODEL@URL#VARIABLE`, where VARIABLE names the environment variable of its key. Without FILE
the rows are those that `run_rl.sh TASK` trains on: TRAIN_FILES, else the task's own file under DATA_DIR.
"""

from __future__ import annotations

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
# Sampled as in training, each sample with a seed of its own; `policy.temperature=null` for who takes none.
SAMPLED = {"temperature": 1.0, "seed": 0}
_ENDPOINT = re.compile(r"endpoint:(?P<model>.+?)@(?P<url>https?://[^#]+)(?:#(?P<key>.+))?")


@dataclass(frozen=True)
class Expert:
    """Who answers the rows of some tasks.

    Attributes:
        name: as given: a path, a hub id or an endpoint.
        sets: name of the set -> its parquet file. A set is named after its task; `TASK:STEM` where the file was named.
    """

    name: str
    sets: Mapping[str, Path]

    @property
    def is_endpoint(self) -> bool:
        return self.name.startswith("endpoint:")

    def endpoint(self, own: Mapping[str, Any]) -> Endpoint:
        """The endpoint that `endpoint:MODEL@URL#VARIABLE` means; `own` are settings of the section `policy`.

        Raises:
            BadSettings: it is of another form, or a setting cannot be.
        """
        found = _ENDPOINT.fullmatch(self.name)
        if found is None:  # not repeated: a key may stand where its variable's name belongs
            raise BadSettings(
                "An endpoint is written endpoint:MODEL@URL#VARIABLE, with http:// or https:// in the URL."
            )
        where = {"model": found["model"], "base_url": found["url"], "api_key_env": found["key"] or "none"}
        made = policy_endpoint({**SAMPLED, **own, **where})
        assert made is not None  # it is named
        return made


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line: TASK=EXPERT, and settings (section.key=value).

    Raises:
        BadSettings: a word is neither.
    """
    odd = [word for word in words if "=" not in word.strip("=")]
    if odd:
        raise BadSettings(f"{odd[0]!r}: write TASK=EXPERT, TASK:FILE=EXPERT or section.key=value.")
    settings = [word for word in words if "." in word.partition("=")[0] and word.partition(".")[0] in SECTIONS]
    return [word for word in words if word not in settings], settings


def experts(words: Sequence[str], train_files: Sequence[str], data_dir: Path) -> list[Expert]:
    """The experts of a command line, each with all its tasks, in the order in which they are first named.

    Args:
        words: TASK=EXPERT and TASK:FILE=EXPERT.
        train_files: TRAIN_FILES; they take the place of the tasks' own files.

    Raises:
        BadSettings: a word of another form, a set that is there twice, no file for a task, or one of another task.
        UnknownTask: no such task.
    """
    sets: dict[str, dict[str, Path]] = {}
    for word in words:
        place, _, expert = word.partition("=")
        name, _, file = place.partition(":")
        launch = tasks.launch(name)
        if file:
            found = {f"{name}:{Path(file).stem}": Path(file)}
        elif train_files:
            found = _named(name, launch, train_files)
        else:
            found = {name: data_dir / "sim_rl_data" / f"{launch.train}.parquet"}
        of_expert = sets.setdefault(expert, {})
        for key, path in found.items():
            if key in of_expert:
                raise BadSettings(
                    f"{word}: {expert} has the rows {key} already. Rename a file, or drop one of the two."
                )
            _check(path, launch, named=bool(file))
            of_expert[key] = path
    return [Expert(name, of_expert) for name, of_expert in sets.items()]


def task_of(name: str) -> str:
    """The task of a set."""
    return name.partition(":")[0]


def _named(name: str, launch: TrainingSplit, train_files: Sequence[str]) -> dict[str, Path]:
    """Those of TRAIN_FILES that hold the task's rows."""
    own = [Path(file) for file in train_files if launch.task in _tasks_in(Path(file))]
    if not own:
        raise BadSettings(f"None of TRAIN_FILES holds rows of {name} (data_source {launch.task}). Name its file too.")
    return {name if len(own) == 1 else f"{name}:{path.stem}": path for path in own}


def _check(path: Path, launch: TrainingSplit, *, named: bool) -> None:
    found = _tasks_in(path)
    if len(found) > 1:
        raise BadSettings(f"{path} holds rows of several tasks ({', '.join(sorted(found))}). Split the file.")
    if named and launch.task not in found:
        raise BadSettings(f"{path} holds rows of {', '.join(found)}, not of {launch.task}. Name another task or file.")


def _tasks_in(path: Path) -> set[str]:
    """The tasks of a file, read from one column.

    Raises:
        BadRow: there is no such file, or it is no task file.
    """
    if not path.is_file():
        raise BadRow(f"{path}: there is no such file. Set DATA_DIR or TRAIN_FILES, or name it: TASK:FILE=EXPERT.")
    try:
        column = pq.read_table(path, columns=["data_source"]).column("data_source")
    except (pa.ArrowException, OSError, KeyError) as error:
        raise BadRow(
            f"{path}: no parquet file with a column data_source ({error}). See python -m data.<task>."
        ) from None
    return {str(name) for name in column.unique().to_pylist()}
