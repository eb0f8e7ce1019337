"""One evaluation, from its options to its report; all commands that evaluate share this."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from rich.text import Text

from soul import tasks
from soul.errors import INFRASTRUCTURE, BadSettings, OutOfSpace, SoulError, UnknownTask
from soul.evaluate.numbers.results import Results
from soul.evaluate.outputs import write_outputs
from soul.evaluate.run import engine, preflight, rescore
from soul.evaluate.run.failures import Failures
from soul.evaluate.run.journal import Journal, Key, read_samples
from soul.evaluate.run.judge_check import JudgeChecks, check_judges, tested
from soul.evaluate.run.options import RunOptions, Sections
from soul.evaluate.run.plan import plan, show
from soul.evaluate.run.progress import Progress
from soul.evaluate.run.run_folder import (
    EvaluationRun,
    interruptible,
    set_outdated_aside,
    write_choice,
)
from soul.evaluate.run.settings import (
    EvaluationSettings,
    SampleRequest,
    find_sets,
    how_to_build,
    sample_requests,
    stand_ins_of,
)
from soul.evaluate.tables.run_table import cautions, columns_of, judged_by, run_table
from soul.files.disk_writes import guarded_writes
from soul.files.folder_lock import FolderLock
from soul.host_resources import infrequent_gc
from soul.judge import Endpoint, GatewaySettings
from soul.message import Escape
from soul.pages.export import REPORT
from soul.record import SessionRecord
from soul.table import terminal
from soul.validation_errors import setting_problem


class Served(NamedTuple):
    """A model under test that we serve.

    Attributes:
        prepare: truncates the rows of samples to fit its context.
        escape: takes its control tokens out of what it reads; None: its tokenizer is unknown.
    """

    prepare: Callable[[list[SampleRequest]], list[SampleRequest]]
    escape: Escape | None


console = terminal()


def settings_of(options: RunOptions, policy: Endpoint, served: dict[str, Any] | None = None) -> EvaluationSettings:
    """The settings of an evaluation.

    Args:
        served: the checkpoint behind the policy's address, if we serve it ourselves (`EvaluationSettings.served`).

    Raises:
        BadSettings: a section or a set is unknown, a value is impossible, or no set has a file.
    """
    suite = options.suite
    files = find_sets(options.sets or (suite.sets if suite else ()), options.data)
    gateway = gateway_of(options.sections)
    try:
        return EvaluationSettings(
            policy=policy,
            gateway=gateway,
            sets=files.found,
            missing=files.missing,
            suite=suite.name if suite else None,
            stand_ins=stand_ins_of(files.found),
            tasks=dict(options.sections.get("tasks", {})),
            limit=suite.rows if suite and options.limit is None else options.limit,
            n=options.n,
            seed=options.seed,
            deadline_s=options.deadline_s,
            served=served,
        )
    except ValidationError as error:
        raise BadSettings(setting_problem(error)) from None


def gateway_of(sections: Sections) -> GatewaySettings:
    """The settings of judges, partners and environments; other sections are ignored.

    Raises:
        BadSettings: a key or a value is unknown, `judge.by_task` names an unknown task, or a setting is for training.
    """
    gateway = GatewaySettings.from_sections(sections)
    given = sections.get("judge", {})
    for_training = {name: given.get(name) for name in ("max_failure_rate", "drift_every")} | {"canary": gateway.canary}
    for name, value in for_training.items():
        if value is not None:
            raise BadSettings(
                f"judge.{name} is for training; leave it out. An evaluation counts failed verdicts and shows the "
                "bounds of the score; to score a finished one with a second judge, use --rescore."
            )
    for task in gateway.by_task.keys() - tasks.CLASSES:  # importing one of ours, as the paper's CoSER, takes time
        try:
            tasks.load(task)
        except UnknownTask as error:
            raise BadSettings(f"judge.by_task.{task}: {error}") from None
    return gateway


def print_missing_sets(settings: EvaluationSettings) -> None:
    """Print the requested sets that have no file, one line each."""
    if settings.missing:
        asked = len(settings.sets) + len(settings.missing)
        print(f"{len(settings.missing)} of {asked} sets have no file and are skipped:", flush=True)
        print("\n".join(how_to_build(settings.missing)), flush=True)


def folder_of(settings: EvaluationSettings, options: RunOptions, *, model: bool = False) -> Path:
    """The run's folder, named after --name or the model; after both if `model` is true."""
    words = [options.name or "eval", *([settings.policy.model] if model or not options.name else [])]
    return settings.folder(options.out, "-".join(re.sub(r"[^\w.-]+", "-", word) for word in words))


@infrequent_gc()
def run(
    settings: EvaluationSettings,
    folder: Path,
    options: RunOptions,
    served: AbstractContextManager[Served] | None = None,
    source: EvaluationRun | None = None,
) -> Results | None:
    """Evaluate and write the results; with --dry-run only print the plan.

    Args:
        source: the run whose episodes are judged again, without playing them.
        served: a context manager that runs the server of the model under test. It is entered only if samples are
            missing.

    Returns:
        The results; None after a dry run.

    Raises:
        SoulError: an endpoint does not answer (then nothing is written), or it stops answering during the run (then
            the finished samples are kept and shown).
        FolderInUse: another process writes to the folder.
        NoVerdict: all verdicts failed; the results are written and shown.
        OutOfSpace: the disk is full; the finished samples are kept.
    """
    ask = options.preflight
    wanted = rescore.sample_requests(settings, source) if source else sample_requests(settings)
    if options.dry_run:
        dry_run(settings, wanted, folder, options.retry_failed, ask=ask, tests_judges=ask)
        return None
    preflight.check(settings, missing_samples(wanted, read_samples(folder), options.retry_failed), ask=ask)
    with exclusive_lock(folder):
        set_outdated_aside(folder, wanted)
        with closing(Journal(folder)) as journal, interruptible(wanted, journal):
            write_choice(folder, settings, wanted)
            if ask:
                todo = missing_samples(wanted, journal.samples, options.retry_failed)
                asked = preflight.judges_asked(settings, todo)
                check_judges(settings.gateway, asked, folder, journal.paid_usd, console)
            try:
                run_missing(settings, wanted, journal, options.retry_failed, served, source)
            except OutOfSpace:
                raise  # the results would not fit either
            except Exception:
                if journal.samples:
                    results_of(journal)  # the results of the finished samples
                raise
            results, failures = results_of(journal)
    failures.require_verdict()
    return results


@contextmanager
def exclusive_lock(*folders: Path) -> Iterator[None]:
    """Lock these run folders. If the disk is full, the error says which folder is on it.

    Raises:
        FolderInUse: another process holds a lock. OutOfSpace: a write inside the block found the disk full.
    """
    with guarded_writes(folders[0]), ExitStack() as locks:
        for folder in folders:
            locks.enter_context(FolderLock(folder))
        yield


def dry_run(
    settings: EvaluationSettings,
    wanted: Sequence[SampleRequest],
    folder: Path,
    retry_failed: bool,
    *,
    ask: bool = True,
    tests_judges: bool = False,
) -> None:
    """Print the plan for the samples that are missing. No sample is run and no file is written.

    Args:
        tests_judges: the run will test its judges (`check_judges`).

    Raises:
        SoulError: after the plan is printed, if an endpoint that it needs does not answer.
    """
    todo = missing_samples(wanted, read_samples(folder), retry_failed)
    problem: SoulError | None = None
    try:
        preflight.check(settings, todo, ask=ask)
    except SoulError as error:
        problem = error
    judges = tested(preflight.judges_asked(settings, todo), folder) if tests_judges else {}
    show(console, settings, plan(settings, todo, judges))
    console.print(f"{len(wanted) - len(todo):,} samples are finished already; run folder {folder}")
    if problem is not None:
        raise problem


def missing_samples(
    wanted: Sequence[SampleRequest], there: Mapping[Key, SessionRecord], retry_failed: bool
) -> list[SampleRequest]:
    """The samples that are missing or out of date, and the failed ones that run again.

    Args:
        there: the finished samples.
        retry_failed: run every failed sample again, not only those that failed for a cause in `INFRASTRUCTURE`:
            time-outs, server errors, spent budgets and the like are no fault of an answer.
    """

    def is_done(request: SampleRequest) -> bool:
        sample = there.get(request.key)
        if sample is None or sample.stamp != request.stamp:
            return False
        return sample.draft.valid or not (retry_failed or sample.draft.cause in INFRASTRUCTURE)

    return [request for request in wanted if not is_done(request)]


def results_of(journal: Journal) -> tuple[Results, Failures]:
    """Write and print the results of the finished samples.

    Above the table stand its judges and, if every sample failed, the cause; below it warnings and failures.
    """
    run = EvaluationRun.load(journal.folder, journal.samples)
    results, failures = write_outputs(run), Failures()
    failures.add(run.samples)
    if cause := failures.cause():
        console.print(Text(f"\n{cause}\n", style="bold red"), soft_wrap=True)
    title = "\n".join(["Results", *judged_by(run, results)])
    console.print(run_table(results, columns_of(run.suite), width=console.width).rich(title))
    for warning in cautions(run, results):
        console.print(warning, markup=False, highlight=False)
    show_failures(failures)
    console.print(f"Report: {run.folder / REPORT}", soft_wrap=True)
    return results, failures


def show_failures(failures: Failures) -> None:
    """Print how many samples failed and which command runs them again; nothing if none did."""
    for line in failures.lines():
        console.print(Text(line, style="bold red"), soft_wrap=True)


def run_missing(
    settings: EvaluationSettings,
    wanted: Sequence[SampleRequest],
    journal: Journal,
    retry_failed: bool,
    served: AbstractContextManager[Served] | None = None,
    source: EvaluationRun | None = None,
) -> None:
    """Run the samples that the journal lacks; the arguments are those of `run`."""
    todo = missing_samples(wanted, journal.samples, retry_failed)
    keys = {request.key for request in wanted} - {request.key for request in todo}
    known = [journal.samples[key] for key in keys]
    counts = f"{len(known):,} samples are finished, {len(todo):,} to run"
    console.print(f"{settings.policy.model}: {counts}; {journal.folder}", soft_wrap=True)
    if not todo:
        return
    of_sets = Counter(request.set for request in wanted)
    calls = {request.set: engine.expected_calls(request) for request in wanted}
    with served or nullcontext() as model:
        chosen, escape = (model.prepare(todo), model.escape) if model else (todo, None)
        with Progress(console, of_sets, calls, known, JudgeChecks.read(journal.folder).usage.cost_usd) as progress:
            asyncio.run(engine.evaluate(settings, chosen, journal, progress.add, source, escape))
