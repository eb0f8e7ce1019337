"""Log a run's results to Weights & Biases: numbers by set, the table, and a table of samples.

The client decides where the run goes: WANDB_MODE=offline, WANDB_PROJECT, WANDB_ENTITY, and its key from the environment
or its login. With WANDB_RUN_ID and WANDB_RESUME=allow, several checkpoints share one run and one curve, whose x axis is
the checkpoint's step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from soul.errors import SoulError
from soul.evaluate.export.options import ExportOptions
from soul.evaluate.export.scalars import scalars
from soul.evaluate.numbers.results import Results
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.table import SHOWN, lines, titles
from soul.record import SessionRecord

PREFIX = "soul"
STEP = f"{PREFIX}/checkpoint_step"
SAMPLE_COLUMNS = ("set", "row", "sample", "valid", "reward", "failure", "ended", "conversation", "critique", "cost_usd")


class NotLogged(SoulError):
    """Weights & Biases cannot start the run."""


def write(run: EvaluationRun, results: Results, options: ExportOptions) -> str:
    """Log the results as one run; the client creates its folder `wandb/` in `options.out` or the run's folder.

    At most `options.samples` samples are logged, spread over the sets; the total is logged too.

    Returns:
        The URL of the run, or the folder of an offline run.

    Raises:
        NotLogged: the client cannot start the run.
    """
    import wandb

    try:
        started = wandb.init(
            project=os.environ.get("WANDB_PROJECT", options.project),
            name=run.name,
            job_type="evaluation",
            config=_config(run),
            dir=str(options.out or run.folder),
            reinit="create_new",
        )
    except wandb.Error as error:  # no key, no connection, no such project
        raise NotLogged(f"Weights & Biases: {error} WANDB_MODE=offline keeps the run on this machine.") from error
    with started as logged:
        numbers: dict[str, Any] = {f"{PREFIX}/{name}": value for name, value in scalars(results).items()}
        if options.step is not None:
            logged.define_metric(STEP)
            logged.define_metric(f"{PREFIX}/*", step_metric=STEP)
            numbers[STEP] = options.step
        columns: list[str | int] = [*titles(results), *(column.title for column in SHOWN)]
        rows: list[Iterable[Any]] = [[*line.cells, *line.published] for line in lines(results)]
        chosen = spread(run, options.samples)
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
    place: dict[str, int] = {}
    ranked: list[tuple[int, int, SessionRecord]] = []
    for sample in run.samples:
        place[sample.set] = place.get(sample.set, -1) + 1
        ranked.append((place[sample.set], len(ranked), sample))
    return [sample for _, _, sample in sorted(ranked, key=lambda one: one[:2])[:most]]


def _config(run: EvaluationRun) -> dict[str, Any]:
    chosen = {"limit": run.limit, "n": run.n, "seed": run.seed, "wanted": dict(run.wanted)}
    return {"run": run.folder.name, **run.settings, **chosen}


def _cells(sample: SessionRecord) -> list[Any]:
    draft, failure = sample.draft, sample.draft.failure
    cost = sum(usage.cost_usd for usage in sample.usage.values())
    return [
        *(sample.set, sample.number, sample.sample),
        *(draft.valid, draft.reward, f"{failure.stage}: {failure.cause}" if failure else None),
        *(draft.ended, _whole(json.dumps(draft.seats, ensure_ascii=False, indent=1))),
        *(_whole(draft.critique or ""), cost),
    ]


def _whole(text: str) -> str:
    """Replace lone surrogates by escapes, because the client cannot write them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
