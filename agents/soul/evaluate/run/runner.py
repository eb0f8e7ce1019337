"""What the commands of evaluation share: their options, and a run from its settings to its report."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from soul import tasks
from soul.cli.arguments import non_negative_int, output_folder, positive_float, positive_int
from soul.cli.error_border import Parser
from soul.errors import BadSettings, OutOfSpace, SoulError, UnknownTask
from soul.evaluate.export import ExportOptions, check, export
from soul.evaluate.numbers.results import Results
from soul.evaluate.outputs import write_outputs
from soul.evaluate.report import FILE as REPORT
from soul.evaluate.run import engine, preflight, rescore
from soul.evaluate.run.ctrl_c import interruptible
from soul.evaluate.run.failures import Failures
from soul.evaluate.run.gc_tuning import seldom_collected
from soul.evaluate.run.journal import Journal, Key, holds
from soul.evaluate.run.plan import plan
from soul.evaluate.run.progress import Progress
from soul.evaluate.run.run_folder import EvaluationRun, resolve_run_folder, samples_there, write_choice
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest, find_sets, how_to_build, items
from soul.evaluate.tables import notes, table
from soul.files.disk_space import guarded_writes
from soul.files.folder_lock import FolderLock
from soul.judge import Endpoint, GatewaySettings
from soul.record import SessionRecord
from soul.suites.soul_v1 import ALIASES, SUITES, suite

Prepare = Callable[[list[SampleRequest]], list[SampleRequest]]
console = Console(width=max(120, Console().width))


@dataclass(frozen=True)
class Taking:
    """Which samples a command takes.

    Attributes:
        retry_failed: those too that an answer or a request failed, not only those that endpoints or limits failed.
        ask_first: send one small request to each endpoint before the first sample.
    """

    retry_failed: bool = False
    ask_first: bool = True

    @classmethod
    def given(cls, words: argparse.Namespace) -> Taking:
        """From the options of `add_taking_options`."""
        return cls(words.retry_failed, not words.no_preflight)


def options(program: str, description: str | None) -> Parser:
    """The options that all modes take."""
    parser = Parser(prog=program, description=description)
    parser.add_argument("words", nargs="*", help="sets (or parquet files), and section.key=value")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), help="DATA_DIR")
    parser.add_argument(
        "--out", type=output_folder, default=os.environ.get("OUTPUT_DIR") or "outputs", help="OUTPUT_DIR"
    )
    parser.add_argument("--name", default=os.environ.get("EXPERIMENT_NAME"), help="of the run; default: the model's")
    suites = " | ".join([*SUITES, *ALIASES])
    parser.add_argument(
        "--suite", metavar=suites, help="use the sets and rows of a suite (agents/soul/suites/soul_v1.py)"
    )
    parser.add_argument("--limit", type=positive_int, help="rows of each set, drawn by the seed (the paper: 100)")
    parser.add_argument("--n", type=positive_int, default=1, help="samples of each row")
    parser.add_argument("--seed", type=int, default=0, help="which rows")
    parser.add_argument("--deadline", type=positive_float, help="seconds that the play of one episode may take")
    parser.add_argument("--dry-run", action="store_true", help="check everything, print the plan, take no sample")
    parser.add_argument(
        "--thinking-tokens",
        type=non_negative_int,
        default=0,
        help="tokens that a model thinks before each answer, for the plan (default 0)",
    )
    add_taking_options(parser)
    parser.add_argument(
        "--export", default="", metavar="TO,...", help="lm-eval, wandb, tensorboard (soul.evaluate.export)"
    )
    parser.add_argument("--step", type=non_negative_int, help="of the checkpoint: the x axis of what is exported")
    return parser


def add_taking_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The options that `Taking.given` reads."""
    parser.add_argument("--no-preflight", action="store_true", help="skip the test call to each endpoint at the start")
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="take all failed samples again; without it only those that endpoints or limits failed",
    )


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line: names of sets, and settings."""
    return [word for word in words if "=" not in word], [word for word in words if "=" in word]


def settings_of(
    given: argparse.Namespace,
    policy: Endpoint,
    names: Sequence[str],
    sections: dict[str, dict[str, Any]],
    served: dict[str, Any] | None = None,
) -> EvaluationSettings:
    """The settings that a command line means.

    Args:
        given: of `options`.
        names: of the sets.
        sections: judges and tasks, as words gave them.
        served: what stands behind the policy's address where it is ours.

    Raises:
        BadSettings: a section or a set is unknown, a value cannot be, or no set has a file.
    """
    options = sections.pop("tasks", {})
    chosen = suite(given.suite) if given.suite else None
    if chosen and names:
        raise BadSettings(f"Name sets ({', '.join(names)}) or a suite ({given.suite}), not both (TASKS and SUITE).")
    files = find_sets(names or (chosen.sets if chosen else ()), given.data)
    gateway = gateway_of(sections)
    try:
        return EvaluationSettings(
            policy=policy,
            gateway=gateway,
            sets=files.found,
            missing=files.missing,
            suite=chosen.name if chosen else None,
            tasks=options,
            limit=chosen.rows if chosen and given.limit is None else given.limit,
            n=given.n,
            seed=given.seed,
            deadline_s=given.deadline,
            served=served,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise BadSettings(f"{key}={first['input']!r}: {first['msg']}.") from None


def gateway_of(sections: Mapping[str, Mapping[str, Any]]) -> GatewaySettings:
    """The settings of judges, partners and environments.

    Raises:
        BadSettings: a key or a value is unknown, or `judge.by_task` names no task: that judge would be ignored.
    """
    gateway = GatewaySettings.from_sections(sections)
    for task in gateway.by_task:
        try:
            tasks.load(task)
        except UnknownTask as error:
            raise BadSettings(f"judge.by_task.{task}: {error}") from None
    return gateway


def say_missing(settings: EvaluationSettings) -> None:
    """Print the sets that were asked for and have no file, one line each."""
    if settings.missing:
        asked = len(settings.sets) + len(settings.missing)
        lines = [f"{len(settings.missing)} of {asked} sets are left out:", *how_to_build(settings.missing)]
        print("\n".join(lines), flush=True)


def folder_of(settings: EvaluationSettings, given: argparse.Namespace, *, model: bool = False) -> Path:
    """The run's folder, named after --name or the model; after both where `model` says so."""
    words = [given.name or "eval", *([settings.policy.model] if model or not given.name else [])]
    return settings.folder(given.out, "-".join(re.sub(r"[^\w.-]+", "-", word) for word in words))


@seldom_collected()
def run(
    settings: EvaluationSettings,
    folder: Path,
    given: argparse.Namespace,
    served: AbstractContextManager[Prepare | None] | None = None,
    source: EvaluationRun | None = None,
) -> Results | None:
    """Evaluate and write the results; with --dry-run only print the plan.

    Args:
        given: of `options`.
        source: the run whose episodes are judged again, instead of playing.
        served: entered only if a sample is to be taken: whatever the model under test needs meanwhile. It may give a
            function that prepares the samples.

    Returns:
        The results; None after a dry run.

    Raises:
        SoulError: an endpoint cannot be asked (nothing has been written then), or one went down during the run (the
            samples that were taken are kept and shown).
        FolderInUse: another process takes samples there.
        NoVerdict: all verdicts failed; the results are written and shown.
        OutOfSpace: the disk is full; the samples that were taken are kept.
    """
    targets, taking = check(given.export), Taking.given(given)
    wanted = rescore.items(settings, source) if source else items(settings)
    if given.dry_run:
        dry_run(settings, wanted, folder, taking, given.thinking_tokens, source)
        return None
    preflight.check(settings, still_to_take(wanted, samples_there(folder), taking, source), ask=taking.ask_first)
    with alone_in(folder):
        folder = resolve_run_folder(folder, wanted)
        with closing(Journal(folder)) as journal, interruptible(wanted, journal):
            write_choice(folder, settings, wanted)
            try:
                run_missing(settings, wanted, journal, folder, taking, served, source)
            except OutOfSpace:
                raise  # there is no room for results either
            except Exception:
                if journal.samples:
                    results_of(folder, journal)  # of the samples so far
                raise
            finished, results = results_of(folder, journal)
    Failures.from_run(finished).require_verdict()
    for target, place in zip(targets, export(finished, results, targets, ExportOptions(step=given.step)), strict=True):
        console.print(f"{target}: {place}")
    return results


@contextmanager
def alone_in(*folders: Path) -> Iterator[None]:
    """Hold the locks of these run folders (and with them of their later generations); name them when a disk is full.

    Raises:
        FolderInUse: another process holds one. OutOfSpace: a write inside the block found a full disk.
    """
    with guarded_writes(folders[0]), ExitStack() as locks:
        for folder in folders:
            locks.enter_context(FolderLock(folder, "evaluation"))
        yield


def dry_run(
    settings: EvaluationSettings,
    wanted: Sequence[SampleRequest],
    folder: Path,
    taking: Taking,
    thinking_tokens: int = 0,
    source: EvaluationRun | None = None,
) -> None:
    """Print the plan for those of these samples that are not there yet. No sample is taken and no file is written.

    Raises:
        SoulError: after the plan was printed: an endpoint that it needs cannot be asked.
    """
    todo = still_to_take(wanted, samples_there(folder), taking, source)
    latencies: dict[str, float | None] = {}
    problem: SoulError | None = None
    try:
        latencies = preflight.check(settings, todo, ask=taking.ask_first)
    except SoulError as error:
        problem = error
    preflight.show(console, settings, plan(settings, todo, latencies, thinking_tokens))
    console.print(f"{len(wanted) - len(todo):,} samples are there already; run folder {folder}")
    if problem is not None:
        raise problem


def still_to_take(
    wanted: Sequence[SampleRequest],
    there: Mapping[Key, SessionRecord],
    taking: Taking = Taking(),
    source: EvaluationRun | None = None,
) -> list[SampleRequest]:
    """The samples that are not there yet, and those that failed as far as they are to be taken again (`holds`).

    Args:
        source: the run whose episodes are judged again. Where it has no episode, there is nothing to take again.
    """
    silent = rescore.without_episode(source) if source else frozenset()
    todo = [item for item in wanted if not holds(there, item.key, item.stamp, taking.retry_failed)]
    return [item for item in todo if item.key not in silent or item.key not in there]


def results_of(folder: Path, journal: Journal) -> tuple[EvaluationRun, Results]:
    """Write and print the results of a run so far."""
    run = EvaluationRun.load(folder, journal.samples)
    results = write_outputs(run)
    show(run, results)
    console.print(f"Report: {folder / REPORT}")
    return run, results


def show(run: EvaluationRun, results: Results) -> None:
    """Print the table of a run: the cause above where everything failed, judges above, warnings and failures below."""
    failures = Failures.from_run(run)
    if cause := failures.cause():
        console.print(Text(f"\n{cause}\n", style="bold red"), soft_wrap=True)
    title = "\n".join(["Results", *notes.header(run, results)])
    console.print(table.rich_table(results, table.columns_of(run.suite), title, width=console.width))
    for warning in notes.warnings(run, results):
        console.print(warning, markup=False, highlight=False)
    show_failures(failures)


def show_failures(failures: Failures) -> None:
    """Print how many samples failed and what takes them again; nothing where none did."""
    for line in failures.lines():
        console.print(Text(line, style="bold red"), soft_wrap=True)


def run_missing(
    settings: EvaluationSettings,
    wanted: Sequence[SampleRequest],
    journal: Journal,
    folder: Path,
    taking: Taking,
    served: AbstractContextManager[Prepare | None] | None = None,
    source: EvaluationRun | None = None,
) -> None:
    """Take the samples that the journal lacks; the arguments are those of `run`."""
    todo = still_to_take(wanted, journal.samples, taking, source)
    keys = {item.key for item in wanted} - {item.key for item in todo}
    known = [journal.samples[key] for key in keys]
    console.print(f"{settings.policy.model}: {len(known):,} samples are there, {len(todo):,} to take; {folder}")
    if not todo:
        return
    counts = Counter(item.set for item in wanted)
    with served or nullcontext() as prepare:
        if served and taking.ask_first:
            preflight.check_policy(settings.policy)  # before its server had started, nobody could answer
        chosen = prepare(todo) if prepare else todo
        with Progress(console, counts, known) as progress:
            if source:
                work = rescore.rescore(settings, source, chosen, journal, folder, progress.add, progress.follow)
            else:
                work = engine.evaluate(settings, chosen, journal, folder, progress.add, progress.follow)
            asyncio.run(work)
