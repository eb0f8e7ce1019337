"""The command line of an evaluation: the parser that all modes share, and the options as an object."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soul.cli.arguments import is_setting, one_of, output_folder, positive_float, positive_int
from soul.cli.error_border import Parser
from soul.errors import BadSettings
from soul.judge.roles import sections_of
from soul.suites import SUITES, Suite, suite

Sections = Mapping[str, Mapping[str, Any]]


# Options that are fields of `RunOptions` under the same name.
_AS_GIVEN = ("data", "out", "name", "limit", "n", "seed", "dry_run", "retry_failed")


@dataclass(frozen=True)
class RunOptions:
    """The options of an evaluation; the help of the command line explains most of them.

    Attributes:
        sets: names of sets, or parquet files; empty: those of the suite, or all 27.
        sections: settings of judges, tasks and the policy: section -> key -> value.
        name: the run's name; None: the model's.
        limit: rows of each set; None: those of the suite, or all.
        deadline_s: seconds to play one episode; None: no limit.
        retry_failed: also run samples again that failed because of an answer or a request, not only because of
            endpoints or limits.
        preflight: send small requests to each endpoint before the first sample.
    """

    sets: tuple[str, ...] = ()
    suite: Suite | None = None
    sections: Sections = field(default_factory=dict)
    data: Path = Path("data")
    out: Path = Path("outputs")
    name: str | None = None
    limit: int | None = None
    n: int = 1
    seed: int = 0
    deadline_s: float | None = None
    dry_run: bool = False
    retry_failed: bool = False
    preflight: bool = True

    @classmethod
    def from_arguments(cls, given: argparse.Namespace) -> RunOptions:
        """Read the options of `parser`.

        Raises:
            BadSettings: a word is neither a set nor a setting, or a suite is unknown or combined with sets.
        """
        names = [word for word in given.words if not is_setting(word)]
        chosen = suite(given.suite) if given.suite else None
        if names and given.suite:
            raise BadSettings(f"Name sets ({', '.join(names)}) or a suite ({given.suite}), not both (TASKS and SUITE).")
        return cls(
            sets=tuple(names),
            suite=chosen,
            sections=sections_of([word for word in given.words if is_setting(word)], ["tasks"]),
            deadline_s=given.deadline,
            preflight=not given.no_preflight,
            **{name: getattr(given, name) for name in _AS_GIVEN},
        )


def parser(program: str, description: str | None) -> Parser:
    """The command line with the options that all modes share."""
    parser = Parser(prog=program, description=description)
    add, environment = parser.add_argument, os.environ
    add("words", nargs="*", help="sets (or parquet files), and section.key=value")
    add("--data", type=Path, default=Path(environment.get("DATA_DIR", "data")), help="DATA_DIR")
    add("--out", type=output_folder, default=environment.get("OUTPUT_DIR") or "outputs", help="OUTPUT_DIR")
    add("--name", default=environment.get("EXPERIMENT_NAME"), help="the run's name; default: the model's")
    add("--suite", metavar=" | ".join(SUITES), help="the sets and rows of a suite")
    add("--limit", type=positive_int, help="rows of each set, drawn by the seed (the paper: 100)")
    add("--n", type=positive_int, default=1, help="samples of each row")
    add("--seed", type=int, default=0, help="decides which rows are drawn")
    add_run_choice_options(parser)
    return parser


def add_server_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options for checkpoints that vLLM serves (`ServerSettings`, `Checkpoint.find`)."""
    add, platform = parser.add_argument, os.environ.get("PLATFORM") or "gpu"
    add("--base", default=os.environ.get("BASE_MODEL_PATH"), help="the base model of a LoRA adapter")
    add("--tp", type=positive_int, default=1, help="devices of one replica")
    add("--dp", type=positive_int, default=1, help="replicas")
    add("--platform", type=one_of("gpu", "cpu"), default=platform, help="gpu or cpu (PLATFORM)")


def add_run_choice_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options of which samples run, after which checks."""
    add = parser.add_argument
    add("--deadline", type=positive_float, help="seconds to play one episode")
    add("--no-preflight", action="store_true", help="skip the test call to each endpoint at the start")
    retries = "run all failed samples again; default: only those that failed because of endpoints or limits"
    add("--retry-failed", action="store_true", help=retries)
    add("--dry-run", action="store_true", help="check everything, print the plan, run no sample")
