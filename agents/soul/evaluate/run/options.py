"""The command line of an evaluation: the parser that all modes share, and the options as an object."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soul.cli.arguments import non_negative_int, one_of, output_folder, positive_float, positive_int
from soul.cli.error_border import Parser
from soul.errors import BadSettings
from soul.judge.roles import sections_of
from soul.suites import ALIASES, SUITES, Suite, suite
from soul.suites.soul_v1 import SETS

Sections = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class RunChoice:
    """The samples that a command runs.

    Attributes:
        retry_failed: also those that failed because of an answer or a request, not only because of endpoints or limits.
        ask_first: send one small request to each endpoint before the first sample.
    """

    retry_failed: bool = False
    ask_first: bool = True

    @classmethod
    def from_arguments(cls, given: argparse.Namespace) -> RunChoice:
        """Read the options of `add_run_choice_options`."""
        return cls(given.retry_failed, not given.no_preflight)


FIRST = RunChoice()  # a first start
# Options that are fields of `RunOptions` under the same name.
_AS_GIVEN = ("data", "out", "name", "limit", "n", "seed", "thinking_tokens", "dry_run", "wandb", "step")


@dataclass(frozen=True)
class RunOptions:
    """The options of an evaluation.

    Attributes:
        sets: names of sets, or parquet files; empty: those of the suite, or all 27.
        suite: None if none is named.
        sections: settings of judges, tasks and the policy: section -> key -> value.
        data: the folder with the task files.
        out: the parent of the run folder.
        name: the run's name; None: the model's.
        limit: rows of each set; None: those of the suite, or all.
        n: samples of each row.
        seed: decides which rows are drawn.
        deadline_s: seconds to play one episode; None: no limit.
        thinking_tokens: expected tokens of thought before each answer, for the plan.
        dry_run: print the plan and run no sample.
        wandb: log the results to Weights & Biases.
        step: the training step of the checkpoint, for that.
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
    thinking_tokens: int = 0
    dry_run: bool = False
    choice: RunChoice = FIRST
    wandb: bool = False
    step: int | None = None

    @classmethod
    def from_arguments(cls, given: argparse.Namespace) -> RunOptions:
        """Read the options of `parser`.

        Raises:
            BadSettings: a word is neither a set nor a setting, or a suite is unknown or combined with sets.
        """
        names = [word for word in given.words if "=" not in word]
        chosen, listed = _suite(given.suite) if given.suite else (None, [])
        if names and given.suite:
            raise BadSettings(f"Name sets ({', '.join(names)}) or a suite ({given.suite}), not both (TASKS and SUITE).")
        return cls(
            sets=(*names, *listed),
            suite=chosen,
            sections=sections_of([word for word in given.words if "=" in word], ["tasks"]),
            deadline_s=given.deadline,
            choice=RunChoice.from_arguments(given),
            **{name: getattr(given, name) for name in _AS_GIVEN},
        )


def _suite(text: str) -> tuple[Suite | None, list[str]]:
    """The suite of this name and no sets; or no suite and these comma-separated sets."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > 1 or names[0:1] and names[0] in SETS:
        return None, names
    return suite(text), []


def parser(program: str, description: str | None) -> Parser:
    """The command line with the options that all modes share."""
    parser = Parser(prog=program, description=description)
    parser.add_argument("words", nargs="*", help="sets (or parquet files), and section.key=value")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), help="DATA_DIR")
    parser.add_argument(
        "--out", type=output_folder, default=os.environ.get("OUTPUT_DIR") or "outputs", help="OUTPUT_DIR"
    )
    parser.add_argument(
        "--name", default=os.environ.get("EXPERIMENT_NAME"), help="the run's name; default: the model's"
    )
    suites = " | ".join([*SUITES, *ALIASES, "SET,SET,..."])
    parser.add_argument("--suite", metavar=suites, help="the sets and rows of a suite, or these sets")
    parser.add_argument("--limit", type=positive_int, help="rows of each set, drawn by the seed (the paper: 100)")
    parser.add_argument("--n", type=positive_int, default=1, help="samples of each row")
    parser.add_argument("--seed", type=int, default=0, help="decides which rows are drawn")
    add_run_choice_options(parser)
    parser.add_argument("--wandb", action="store_true", help="log the results to Weights & Biases")
    parser.add_argument("--step", type=non_negative_int, help="the checkpoint's training step: the x axis there")
    return parser


def add_server_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options for checkpoints that vLLM serves (`ServerSettings`, `Checkpoint.find`)."""
    parser.add_argument("--base", default=os.environ.get("BASE_MODEL_PATH"), help="the base model of a LoRA adapter")
    parser.add_argument("--tp", type=positive_int, default=1, help="devices of one replica")
    parser.add_argument("--dp", type=positive_int, default=1, help="replicas")
    parser.add_argument("--max-prompt-tokens", type=positive_int, help="truncate longer rows as in training")
    parser.add_argument(
        "--platform",
        type=one_of("gpu", "cpu"),
        default=os.environ.get("PLATFORM") or "gpu",
        help="gpu or cpu (PLATFORM)",
    )


def add_run_choice_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options that `RunChoice.from_arguments` and the plan read."""
    parser.add_argument("--deadline", type=positive_float, help="seconds to play one episode")
    parser.add_argument("--no-preflight", action="store_true", help="skip the test call to each endpoint at the start")
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="run all failed samples again; default: only those that failed because of endpoints or limits",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, print the plan, run no sample")
    parser.add_argument(
        "--thinking-tokens",
        type=non_negative_int,
        default=0,
        help="expected tokens of thought before each answer, for the plan (default 0)",
    )
