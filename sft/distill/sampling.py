"""Let experts answer every training row k times. The evaluation engine plays and scores the samples, without feedback.

Each expert has a run folder under DIR/samples, like an evaluation (`soul.evaluate.run.run_folder`). A repeated command
continues where it stopped and requests nothing twice. Besides the journals, this module writes:

    row_groups.json  in each run folder: the record and groups of every row, before it was shortened (`RowIdentity`)
    DIR/sources.json the experts of the last command, for a selection without sampling
"""

from __future__ import annotations

import json
import logging
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sft.distill.experts import SAMPLED, Expert
from soul.cli.redaction import without_secret_values
from soul.errors import BadSettings
from soul.evaluate import local
from soul.evaluate.run import preflight
from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.failures import Failures
from soul.evaluate.run.journal import Journal, read_samples
from soul.evaluate.run.run_folder import interruptible, set_outdated_aside, write_choice
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest, sample_requests
from soul.evaluate.run.vllm_server import ServerSettings, free_port
from soul.evaluate.runner import Served, dry_run, exclusive_lock, missing_samples, run_missing, show_failures
from soul.files.whole_file import write_whole
from soul.host_resources import infrequent_gc
from soul.judge import GatewaySettings
from soul.judge.roles import policy_endpoint, sections_of
from soul.policy import TURN_TOKENS
from soul.record import SessionRecord, record_hash
from soul.rows.overlap import HeldOut, ScopedKey, group_keys
from soul.rows.task_files import TaskRow
from soul.task_types import GroupKey

logger = logging.getLogger(__name__)
SOURCES, ROWS, SAMPLES = "sources.json", "row_groups.json", "samples"


@dataclass(frozen=True)
class RowIdentity:
    """The identity of a row, before it is shortened for a model."""

    record: str  # a hash of the record without its index
    keys: tuple[ScopedKey, ...] = ()  # the groups that the row is in

    @classmethod
    def from_row(cls, row: TaskRow) -> RowIdentity:
        return cls(record_hash(row.row), tuple(group_keys(row)))

    @classmethod
    def from_json(cls, value: Any) -> RowIdentity:
        """Read `to_json`; raises ValueError or TypeError if the value has another form."""
        record, keys = value
        return cls(str(record), tuple((scope, GroupKey(*key)) for scope, key in keys))

    def to_json(self) -> Any:
        return [self.record, self.keys]


@dataclass(frozen=True)
class _SamplingPlan:
    """An expert with the evaluation that samples it."""

    expert: Expert
    settings: EvaluationSettings
    folder: Path
    served: AbstractContextManager[Served] | None


RowIdentities = Mapping[str, Mapping[int, RowIdentity]]  # set -> number of a row -> what it is


def sample(
    experts: Sequence[Expert], words: Sequence[str], given: Namespace, server: ServerSettings, held_out: HeldOut
) -> None:
    """Take the missing samples of all experts, one expert after another.

    Before the first sample, every endpoint that is needed gets small requests. A dry run prints the plan; it runs
    no samples and writes nothing.

    Args:
        words: `section.key=value` from the command line, for judges, policy and tasks.
        given: the options of the command line.
        held_out: rows of evaluations, which are not sampled.
    """
    plans = [_plan(expert, words, given, server) for expert in experts]
    out, ask = given.out, not given.no_preflight
    if len({plan.folder for plan in plans}) < len(plans):
        raise BadSettings("Two experts have the same name and files. Name each expert once.")
    chosen = [_choose(sample_requests(plan.settings), held_out) for plan in plans]
    for plan, (_, wanted) in zip(plans, chosen, strict=True):
        if given.dry_run:
            dry_run(plan.settings, wanted, plan.folder, given.retry_failed, ask=ask)
        else:
            todo = missing_samples(wanted, read_samples(plan.folder), given.retry_failed)
            preflight.check(plan.settings, todo, ask=ask)
    if given.dry_run:
        return
    failures = Failures()
    with exclusive_lock(out, *(plan.folder for plan in plans)):
        for plan, (_, wanted) in zip(plans, chosen, strict=True):
            set_outdated_aside(plan.folder, wanted)
        entries = [
            {
                "folder": str(plan.folder.relative_to(out)),
                "expert": plan.expert.name,
                "sets": {name: str(path) for name, path in plan.expert.sets.items()},
            }
            for plan in plans
        ]
        write_whole(out / SOURCES, json.dumps({"experts": entries}, indent=1))
        for number, (plan, (rows, wanted)) in enumerate(zip(plans, chosen, strict=True), start=1):
            logger.info("expert %d of %d: %s; samples go to %s", number, len(plans), plan.expert.name, plan.folder)
            failures.add(_take_missing(plan, rows, wanted, given.retry_failed))
    failures.require_verdict()
    show_failures(failures)


def _choose(requests: Sequence[SampleRequest], held_out: HeldOut) -> tuple[RowIdentities, list[SampleRequest]]:
    """The identities of all rows, and the samples of the rows that no evaluation holds out."""
    rows: defaultdict[str, dict[int, RowIdentity]] = defaultdict(dict)
    evaluated = set()
    for item in requests:
        if item.sample == 0:
            row = rows[item.set][item.row.number] = RowIdentity.from_row(item.row)
            if held_out.shared_keys(row.keys):
                evaluated.add((item.set, item.row.number))
    return rows, [item for item in requests if (item.set, item.row.number) not in evaluated]


@infrequent_gc()
def _take_missing(
    plan: _SamplingPlan, rows: RowIdentities, wanted: Sequence[SampleRequest], retry_failed: bool
) -> list[SessionRecord]:
    """Take the missing samples of one expert, and return the records of all that exist then."""
    folder = plan.folder
    with closing(Journal(folder)) as journal, interruptible(wanted, journal):
        write_choice(folder, plan.settings, wanted)
        by_set = {name: {number: row.to_json() for number, row in of_set.items()} for name, of_set in rows.items()}
        write_whole(folder / ROWS, json.dumps(by_set))
        run_missing(plan.settings, wanted, journal, retry_failed, plan.served)
        return [journal.samples[item.key] for item in wanted if item.key in journal.samples]


def _plan(expert: Expert, words: Sequence[str], given: Namespace, server: ServerSettings) -> _SamplingPlan:
    """The evaluation that samples this expert."""
    sections = sections_of(words, ["tasks"])
    own = sections.pop("policy", {})
    if {"model", "base_url"} & own.keys():
        raise BadSettings("TASK=EXPERT sets model and address: give no policy.model and no policy.base_url.")
    checkpoint = None if expert.is_endpoint else Checkpoint.find(expert.name, given.base)
    served: dict[str, Any] | None = None
    if checkpoint is None:
        policy = expert.endpoint(own)
    else:
        address = {"model": checkpoint.name, "base_url": f"http://127.0.0.1:{free_port()}/v1"}
        endpoint = policy_endpoint({**SAMPLED, **local.PATIENT, **local.FREE, **own, **address})
        assert endpoint is not None  # a model is named
        policy = endpoint
        served = {
            "checkpoint": checkpoint.fingerprint,
            "max_prompt_tokens": local.prompt_tokens(given.max_prompt_tokens, checkpoint),
            "max_turn_tokens": TURN_TOKENS,
            "arguments": without_secret_values(server.arguments),
        }
    evaluation = EvaluationSettings(
        policy=policy,
        tasks=sections.pop("tasks", {}),
        gateway=GatewaySettings.from_sections(sections),
        sets=dict(expert.sets),
        limit=given.limit,
        n=given.n,
        seed=given.seed,
        deadline_s=given.deadline,
        served=served,
    )
    folder = evaluation.folder(
        given.out / SAMPLES, "".join(c if c.isalnum() or c in "._-" else "-" for c in policy.model)
    )
    model = local.served(evaluation, checkpoint, server, folder) if checkpoint else None
    return _SamplingPlan(expert, evaluation, folder, model)
