"""`soul wandb RUN...`: log results to Weights & Biases: numbers by set, the table, and a table of samples.

    soul wandb outputs/eval-base-1a2b3c4d --step 50

The client decides where the run goes: WANDB_MODE=offline, WANDB_PROJECT, WANDB_ENTITY, and its key from the environment
or its login. With WANDB_RUN_ID and WANDB_RESUME=allow, several checkpoints share one run and one curve, whose x axis is
the checkpoint's step.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from soul.cli.arguments import existing_folder, non_negative_int, output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings, SoulError
from soul.evaluate.numbers.results import Results, summarise_run
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.run_table import SHOWN, lines, titles
from soul.judge.call.usage import total
from soul.record import SessionRecord

PREFIX = "soul"
STEP = f"{PREFIX}/checkpoint_step"
SAMPLE_COLUMNS = ("set", "row", "sample", "valid", "reward", "failure", "ended", "conversation", "critique", "cost_usd")


class NotLogged(SoulError):
    """Weights & Biases cannot start the run."""


def check() -> None:
    """Check that the client is installed.

    Raises:
        BadSettings: it is not.
    """
    if importlib.util.find_spec("wandb") is None:
        raise BadSettings("Weights & Biases needs the package wandb: pip install wandb")


def write(
    run: EvaluationRun, results: Results, step: int | None = None, out: Path | None = None, most_samples: int = 1000
) -> str:
    """Log the results as one run.

    Args:
        step: the training step of the checkpoint, for the x axis of curves.
        out: where the client creates its folder `wandb/`; None for the run's folder.
        most_samples: how many samples are logged at most, spread over the sets; the total is logged too.

    Returns:
        The URL of the run, or the folder of an offline run.

    Raises:
        NotLogged: the client cannot start the run.
    """
    import wandb

    try:
        started = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "soul"),
            name=run.name,
            job_type="evaluation",
            config={
                "run": run.folder.name,
                **run.settings,
                "limit": run.limit,
                "n": run.n,
                "seed": run.seed,
                "wanted": dict(run.wanted),
            },
            dir=str(out or run.folder),
            reinit="create_new",
        )
    except wandb.Error as error:  # no key, no connection, no such project
        raise NotLogged(f"Weights & Biases: {error} WANDB_MODE=offline keeps the run on this machine.") from error
    with started as logged:
        numbers: dict[str, Any] = {f"{PREFIX}/{name}": value for name, value in scalars(results).items()}
        if step is not None:
            logged.define_metric(STEP)
            logged.define_metric(f"{PREFIX}/*", step_metric=STEP)
            numbers[STEP] = step
        columns: list[str | int] = [*titles(results), *(column.title for column in SHOWN)]
        rows: list[Iterable[Any]] = [[*line.cells, *line.published] for line in lines(results)]
        chosen = spread(run, most_samples)
        numbers[f"{PREFIX}/samples_logged"], numbers[f"{PREFIX}/samples"] = len(chosen), len(run.samples)
        logged.log(
            {
                **numbers,
                f"{PREFIX}/table": wandb.Table(columns=columns, data=rows),
                f"{PREFIX}/sample_table": wandb.Table(columns=list(SAMPLE_COLUMNS), data=[_cells(s) for s in chosen]),
            }
        )
        return str(logged.url or Path(logged.dir).parent)


def spread(run: EvaluationRun, most: int) -> list[SessionRecord]:
    """At most `most` of a run's samples, from all sets alike: the first of each set, then the second of each, ..."""
    turns = itertools.zip_longest(*run.by_set.values())
    return [sample for turn in turns for sample in turn if sample is not None][:most]


def _cells(sample: SessionRecord) -> list[Any]:
    draft, failure = sample.draft, sample.draft.failure
    texts = (draft.ended, json.dumps(draft.seats, ensure_ascii=False, indent=1), draft.critique)
    return [
        *(sample.set, sample.number, sample.sample),
        *(draft.valid, draft.reward, f"{failure.stage}: {failure.cause}" if failure else None),
        # The client cannot write lone surrogates.
        *((text or "").encode("utf-8", "backslashreplace").decode("utf-8") for text in texts),
        sum(usage.cost_usd for usage in sample.usage.values()),
    ]


def scalars(results: Results) -> dict[str, float]:
    """`hitom/score`, `hitom/score_low`, `hitom/invalid_share`, ..., and `average/...` over the sets.

    Scores are on the table's scale (the headline times 100); a task's other metrics keep their own. Unknown values have
    no entry: a set without a valid sample has no score, and a model without a price has no cost.
    """
    values: dict[str, float | None] = {}
    for name, result in results.sets.items():
        cost = total(result.usage.values())
        values |= {
            f"{name}/samples": float(result.samples),
            f"{name}/invalid": float(result.invalid),
            f"{name}/invalid_share": result.invalid / result.samples if result.samples else None,
            f"{name}/contentless_share": result.contentless / result.samples if result.samples else None,
            f"{name}/score": None if result.mean is None else 100 * result.mean,
            f"{name}/cost_usd": cost.cost_usd if cost.cost_usd or not cost.unpriced else None,
            **_ends(f"{name}/score", result.interval),
            **_ends(f"{name}/score_bound", result.bounds),
            **{f"{name}/metrics/{metric}": value for metric, value in result.metrics.items()},
        }
    for name, average in results.averages.items():
        values |= {
            f"average/{name}": None if average.mean is None else 100 * average.mean,
            f"average/{name}_sets": float(average.sets),
            **_ends(f"average/{name}", average.interval),
            **_ends(f"average/{name}_bound", average.bounds),
        }
    return {name: value for name, value in values.items() if value is not None}


def _ends(name: str, ends: tuple[float, float] | None) -> dict[str, float]:
    return {} if ends is None else {f"{name}_low": 100 * ends[0], f"{name}_high": 100 * ends[1]}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul wandb", description=__doc__)
    parser.add_argument("runs", nargs="+", type=existing_folder, metavar="RUN", help="folders of evaluations")
    parser.add_argument("--out", type=output_folder, help="folder for the client's files; default: the run's folder")
    parser.add_argument("--step", type=non_negative_int, help="of the checkpoint, for the x axis of curves")
    parser.add_argument("--samples", type=non_negative_int, default=1000, help="most samples in the table")
    given = parser.parse_args(arguments)
    check()
    for folder in given.runs:
        run = EvaluationRun.load(folder)
        print(write(run, summarise_run(run), given.step, given.out, given.samples))


if __name__ == "__main__":
    sys.exit(main())
