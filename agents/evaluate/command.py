"""What the commands of evaluation share: their options, and a run from its settings to its report."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from agents import tasks
from agents.errors import BadSettings, SoulError, UnknownTask
from agents.evaluate import ctrl_c, engine, notes, preflight, rescore, table
from agents.evaluate.collection import seldom_collected
from agents.evaluate.ctrl_c import Interrupted, interruptible
from agents.evaluate.export import ExportOptions, check, export
from agents.evaluate.journal import Journal, Key, holds
from agents.evaluate.outputs import write_outputs
from agents.evaluate.plan import POLICY, plan
from agents.evaluate.progress import Progress
from agents.evaluate.report import FILE as REPORT
from agents.evaluate.results import Results
from agents.evaluate.run_folder import EvaluationRun, generation, samples_there, write_choice
from agents.evaluate.settings import EvaluationSettings, Item, find_sets, how_to_build, items
from agents.evaluate.suites import ALIASES, SUITES, suite
from agents.judge import Endpoint, GatewaySettings

USER_ERROR = 2
_OPTIONS = {"limit": "--limit (LIMIT)", "n": "--n (N)", "deadline_s": "--deadline"}  # field of the settings -> option
Prepare = Callable[[list[Item]], list[Item]]
console = Console(width=max(120, Console().width))


def options(program: str, description: str | None) -> argparse.ArgumentParser:
    """The options that all modes take."""
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="sets (or parquet files), and section.key=value")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), help="DATA_DIR")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUTPUT_DIR", "outputs")), help="OUTPUT_DIR")
    parser.add_argument("--name", default=os.environ.get("EXPERIMENT_NAME"), help="of the run; default: the model's")
    suites = " | ".join([*SUITES, *ALIASES])
    parser.add_argument("--suite", metavar=suites, help="use the sets and rows of a suite (agents/evaluate/suites.py)")
    parser.add_argument("--limit", type=int, help="rows of each set, drawn by the seed (the paper: 100)")
    parser.add_argument("--n", type=int, default=1, help="samples of each row")
    parser.add_argument("--seed", type=int, default=0, help="which rows")
    parser.add_argument("--deadline", type=float, help="seconds that the play of one episode may take")
    parser.add_argument("--dry-run", action="store_true", help="check everything, print the plan, take no sample")
    parser.add_argument(
        "--thinking-tokens",
        type=int,
        default=0,
        help="tokens that a model thinks before each answer, for the plan (default 0)",
    )
    parser.add_argument("--retry-failed", action="store_true", help="take failed samples again")
    parser.add_argument(
        "--export", default="", metavar="TO,...", help="lm-eval, wandb, tensorboard (agents.evaluate.export)"
    )
    parser.add_argument("--step", type=int, help="of the checkpoint: the x axis of what is exported")
    return parser


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
        raise BadSettings(f"{_OPTIONS.get(key, key)}={first['input']!r}: {first['msg']}.") from None


def gateway_of(sections: Mapping[str, Mapping[str, Any]]) -> GatewaySettings:
    """The settings of judges, partners and environments.

    Raises:
        BadSettings: a key or a value is unknown, or `judge.by_task` names no task: that judge would be ignored.
    """
    gateway = GatewaySettings.of(sections)
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
    """
    targets = check(given.export)
    wanted = rescore.items(settings, source) if source else items(settings)
    if given.dry_run:
        dry_run(settings, wanted, folder, retry_failed=given.retry_failed, thinking_tokens=given.thinking_tokens)
        return None
    preflight.check(settings, still_to_take(wanted, samples_there(folder), given.retry_failed))
    folder = generation(folder, wanted)
    with closing(Journal(folder)) as journal, interruptible(wanted, journal):
        write_choice(folder, settings, wanted)
        try:
            take_missing(settings, wanted, journal, folder, given.retry_failed, served, source)
        except (Exception, SystemExit):
            if journal.samples:
                results_of(folder, journal)  # of the samples so far
            raise
        finished, results = results_of(folder, journal)
    for target, place in zip(targets, export(finished, results, targets, ExportOptions(step=given.step)), strict=True):
        console.print(f"{target}: {place}")
    return results


def dry_run(
    settings: EvaluationSettings,
    wanted: Sequence[Item],
    folder: Path,
    *,
    retry_failed: bool = False,
    thinking_tokens: int = 0,
) -> None:
    """Print the plan for those of these samples that are not there yet. No sample is taken and no file is written.

    Raises:
        SoulError: after the plan was printed: an endpoint that it needs cannot be asked.
    """
    todo = still_to_take(wanted, samples_there(folder), retry_failed)
    latencies: dict[str, float | None] = {}
    problem: SoulError | None = None
    try:
        if settings.source is None and settings.served is None:
            latencies[POLICY] = preflight.check_policy(settings.policy)
        latencies |= preflight.check(settings, todo)
    except SoulError as error:
        problem = error
    preflight.show(console, settings, plan(settings, todo, latencies, thinking_tokens))
    console.print(f"{len(wanted) - len(todo):,} samples are there already; run folder {folder}")
    if problem is not None:
        raise problem


def still_to_take(
    wanted: Sequence[Item], there: Mapping[Key, Mapping[str, Any]], retry_failed: bool = False
) -> list[Item]:
    """The samples that are not there yet, and with `retry_failed` also those that failed."""
    return [item for item in wanted if not holds(there, item.key, item.stamp, retry_failed)]


def results_of(folder: Path, journal: Journal) -> tuple[EvaluationRun, Results]:
    """Write and print the results of a run so far."""
    run = EvaluationRun.load(folder, journal.samples)
    results = write_outputs(run)
    show(run, results)
    console.print(f"Report: {folder / REPORT}")
    return run, results


def show(run: EvaluationRun, results: Results) -> None:
    """Print the table of a run, with its judges above and the warnings below."""
    title = "\n".join(["Results", *notes.header(run, results)])
    console.print(table.rich_table(results, table.columns_of(run.suite), title, width=console.width))
    for warning in notes.warnings(run, results):
        console.print(warning, markup=False, highlight=False)


def take_missing(
    settings: EvaluationSettings,
    wanted: Sequence[Item],
    journal: Journal,
    folder: Path,
    retry_failed: bool,
    served: AbstractContextManager[Prepare | None] | None = None,
    source: EvaluationRun | None = None,
) -> None:
    """Take the samples that the journal lacks; the arguments are those of `run`."""
    todo = still_to_take(wanted, journal.samples, retry_failed)
    keys = {item.key for item in wanted} - {item.key for item in todo}
    known = [journal.samples[key] for key in keys]
    console.print(f"{settings.policy.model}: {len(known):,} samples are there, {len(todo):,} to take; {folder}")
    if not todo:
        return
    counts = Counter(item.set for item in wanted)
    with served or nullcontext() as prepare:
        chosen = prepare(todo) if prepare else todo
        with Progress(console, counts, known) as progress:
            if source:
                work = rescore.rescore(settings, source, chosen, journal, folder, progress.add, progress.follow)
            else:
                work = engine.evaluate(settings, chosen, journal, folder, progress.add, progress.follow)
            asyncio.run(work)


def guarded(main: Callable[[], object]) -> int:
    """Returns the exit code: 0; 2 for an error that the user can fix; 130 after Ctrl-C."""
    ctrl_c.raise_again()
    try:
        main()
    except Interrupted as interrupted:
        print(f"\n{interrupted}", file=sys.stderr)
        return ctrl_c.EXIT_CODE
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on.", file=sys.stderr)
        return ctrl_c.EXIT_CODE
    except SoulError as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return USER_ERROR
    except OSError as error:  # a full disk, a folder that nobody may write to
        print(f"\n{error}. The same command goes on once that is put right.\n", file=sys.stderr)
        return USER_ERROR
    return 0
