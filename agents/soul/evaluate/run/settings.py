"""The settings of an evaluation: model, judges and rows; and which of them identify a run.

The name of a run folder contains a hash of the settings that determine answers and verdicts. So a rerun resumes where
it stopped, and samples of different models or judges never mix. The number of rows is not part of the hash: more rows
extend the same run. Records, prompts and task versions are compared sample by sample (`SampleRequest.stamp`).
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field

from soul import tasks
from soul.errors import BadSettings
from soul.judge import Endpoint, GatewaySettings
from soul.rows.data_card import read_inside
from soul.rows.task_files import TaskRow, read_rows
from soul.suites import SUITES, soul_v1

# The settings of an endpoint that determine its answers.
_ANSWERS = {"model", "base_url", "reasoning_effort", "temperature", "top_p", "seed", "max_output_tokens"}


class EvaluationSettings(BaseModel):
    """One evaluation of one model.

    Attributes:
        sets: name -> parquet file.
        limit: rows of each set, drawn by the seed; a smaller limit's rows are a subset of a larger one's.
        n: samples of each row.
        deadline_s: seconds to play one episode; None: no limit.
        served: if we serve the policy ourselves (local.py), the checkpoint and its server's arguments. In the identity
            they replace the address, because the port changes with each start.
        stand_ins: set -> why its rows are not the paper's (`stand_ins_of`).
        source: for a rescored run (rescore.py), the policy and the other models of the original run.
        missing: requested sets without a file: name -> the missing file. No average includes them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Endpoint
    gateway: GatewaySettings
    sets: dict[str, Path]
    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)
    limit: int | None = Field(default=None, gt=0)
    n: int = Field(default=1, gt=0)
    seed: int = 0
    deadline_s: float | None = Field(default=None, gt=0)
    served: dict[str, Any] | None = None
    stand_ins: dict[str, str] = Field(default_factory=dict)
    source: dict[str, Any] | None = None
    missing: dict[str, Path] = Field(default_factory=dict)
    suite: str | None = None

    def identity(self) -> dict[str, Any]:
        """The settings that determine answers and verdicts, without API keys and the names of their variables."""
        policy = answer_settings(self.policy)
        if self.served is not None:
            policy = {**policy, "base_url": None, **self.served}
        source, judges = self.source or {}, gateway_identity(self.gateway)
        return {
            **({"policy": policy} | source),
            **judges,
            "roles": judges["roles"] | source.get("roles", {}),
            "tasks": self.tasks,
            "deadline_s": self.deadline_s,
        }

    def folder(self, out: Path, name: str) -> Path:
        """The run's folder, called `name` and a hash of the identity."""
        text = json.dumps(self.identity(), sort_keys=True)
        return out / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def gateway_identity(gateway: GatewaySettings) -> dict[str, Any]:
    """The settings of judges and partners that determine what they say, without API keys."""
    return {
        "roles": {role: answer_settings(endpoint) for role, endpoint in gateway.roles.items()},
        "jury": [
            answer_settings(one) | ({"asked_between": gateway.asked_between[i]} if i in gateway.asked_between else {})
            for i, one in enumerate(gateway.jury)
        ],
        "by_task": {task: answer_settings(endpoint) for task, endpoint in gateway.by_task.items()},
    }


def answer_settings(endpoint: Endpoint) -> dict[str, Any]:
    """The settings of an endpoint that determine its answers, without its key."""
    return {**endpoint.model_dump(mode="json", include=_ANSWERS), "base_url": endpoint.address}


@dataclass(frozen=True)
class SampleRequest:
    """One sample to run.

    Attributes:
        stamp: a hash of the record, the prompts and the task's version (`stamp_of`). A saved sample with another stamp
            is out of date.
        shortened: fields of the record that were truncated to fit the model's context (local.py).
    """

    set: str
    row: TaskRow
    sample: int
    stamp: str
    shortened: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies the sample: set, position of the row, number of the sample."""
        return self.set, self.row.number, self.sample

    def seed(self, base: int | None, seat: str) -> int | None:
        """The seed of one seat of this sample, 0 to 2**31 - 1; None if `base` is None."""
        return None if base is None else crc32(f"{base}:{self.key}:{seat}".encode()) >> 1


def sample_requests(settings: EvaluationSettings) -> list[SampleRequest]:
    """All samples of a run, interleaved so that every set has results early.

    Raises:
        BadRow: a file cannot be read, or a row is not valid.
        BadSettings: a file holds rows of several tasks.
    """
    tasks.configure(settings.tasks)  # before reading the rows, which hold their tasks
    by_set: list[list[SampleRequest]] = []
    for name, file in settings.sets.items():
        rows = read_rows([str(file)])
        if len({row.task.name for row in rows}) > 1:
            raise BadSettings(f"{file} holds rows of several tasks, but a set has one task. Split the file.")
        chosen = sorted(row_sampling_order(rows, f"{settings.seed}:{name}")[: settings.limit])
        stamps = {i: stamp_of(rows[i]) for i in chosen}  # once per row: all samples of a row share it
        by_set.append([SampleRequest(name, rows[i], k, stamps[i]) for i in chosen for k in range(settings.n)])
    ranked = ((place / len(requests), request) for requests in by_set for place, request in enumerate(requests))
    return [request for _, request in sorted(ranked, key=lambda pair: pair[0])]


def stamp_of(row: TaskRow) -> str:
    """A hash of the record, the policy's first prompt, the texts of the judge prompts, and the task's version.

    The prompts that a task renders later in a dialogue are unknown before play: raise `Task.version` with them.
    """
    task = row.task
    prompts = [[prompt.id, str(prompt)] for prompt in task.prompts]
    parts = [row.row.model_dump(mode="json"), task.prompt(row.row), prompts, task.version]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


class SetFiles(NamedTuple):
    """Set -> file, for the requested sets whose file exists, and for the others."""

    found: dict[str, Path]
    missing: dict[str, Path]


def find_sets(names: Sequence[str], data_dir: Path) -> SetFiles:
    """The files of these sets, or of all 27 if `names` is empty.

    A parquet file is a set of your own, named after the file, or after file and parent folders if two files have the
    same name.

    Raises:
        BadSettings: a set is unknown, a named parquet file does not exist, or none of the files exists.
    """
    files: dict[Path, tuple[str, ...]] = {}
    folder = data_dir / "sim_eval_data"
    for name in names or list(soul_v1.SETS):
        if name.endswith(".parquet"):
            if not Path(name).is_file():
                raise BadSettings(f"There is no file {name}.")
            files[Path(name)] = Path(name).resolve().with_suffix("").parts[1:]
        elif name in soul_v1.SETS:
            files[folder / f"{soul_v1.SETS[name].file}.parquet"] = (name,)
        elif name in tasks.names() and name not in tasks.CLASSES:  # registered by the user
            files[folder / f"{tasks.launch(name).val}.parquet"] = (name,)
        else:
            suite = f" That is a suite: use --suite {name} (SUITE={name})." if name in SUITES else ""
            raise BadSettings(f"There is no evaluation set {name!r}.{suite} The sets are: {', '.join(soul_v1.SETS)}.")
    wanted = dict(zip(short_names(list(files.values())), files, strict=True))
    found = {name: file for name, file in wanted.items() if file.is_file()}
    missing = {name: file for name, file in wanted.items() if name not in found}
    if not found:
        listed = ", ".join(f"{name} ({file.name})" for name, file in missing.items())
        raise BadSettings(
            f"No file for {listed} in {folder}. Set DATA_DIR, or build the files in a checkout of the repository: "
            f"python -m data.sets SOURCES --out {data_dir} (docs/tasks says where the records come from). To try "
            f"things out without data: soul examples all --out {data_dir}."
        )
    return SetFiles(found, missing)


def choose_sets(names: Sequence[str], data_dir: Path) -> dict[str, Path]:
    """Like `find_sets`, but every set must have a file. Raises BadSettings if a set is unknown or its file missing."""
    found, missing = find_sets(names, data_dir)
    if missing:
        raise BadSettings("A set has no file.\n" + "\n".join(how_to_build(missing)))
    return found


def how_to_build(missing: Mapping[str, Path]) -> list[str]:
    """A line for each set without a file: the file, and the page that says how to build it."""
    pages = {
        name: f"docs/tasks/{'alignx' if name.startswith('alignx_') else name}.md"
        if name in soul_v1.SETS
        else "docs/add_a_task.md"
        for name in missing
    }
    return [f"  {name}: no {file} (to build it: {pages[name]})" for name, file in missing.items()]


def stand_ins_of(files: Mapping[str, Path]) -> dict[str, str]:
    """The sets whose file says that its rows replace the paper's, and why.

    Raises:
        BadRow: the card of a file cannot be read.
    """
    cards = {name: read_inside(file) for name, file in files.items()}
    return {name: card.stands_in for name, card in cards.items() if card and card.stands_in}


def row_sampling_order(rows: Sequence[TaskRow], seed: str) -> list[int]:
    """The positions of all rows in the order in which they are drawn.

    To within one row, every prefix of the order has the strata in the proportions of the whole set, or in equal numbers
    (`Strata.equal`) until a stratum runs out of rows. Rows without a value are a stratum too.
    """
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    strata = rows[0].task.strata if rows else None
    members: dict[str, list[int]] = {}
    for position in order:
        row = rows[position]
        value = "" if strata is None else row.task.groups(row.row).get(strata.kind, "")
        members.setdefault(value, []).append(position)
    turn: dict[int, float] = {}
    for stratum in members.values():
        share = 1 if strata is not None and strata.equal else len(stratum)
        turn |= {position: (place + 0.5) / share for place, position in enumerate(stratum)}
    return sorted(order, key=turn.__getitem__)  # a stable sort: equal turns stay in the drawn order


def short_names(paths: Sequence[tuple[str, ...]], least: Sequence[int] | None = None) -> list[str]:
    """A name for each path, from its last parts: `run`; or `seed_1-run` and `seed_2-run`.

    Args:
        least: the least number of trailing parts in each name; None: 1.
    """
    counts = list(least or [1] * len(paths))
    while True:
        names = ["-".join(parts[-count:]) for parts, count in zip(paths, counts, strict=True)]
        shared = {name for name, count in Counter(names).items() if count > 1}
        growing = [i for i, name in enumerate(names) if name in shared and counts[i] < len(paths[i])]
        if not growing:
            return names
        for i in growing:
            counts[i] += 1
