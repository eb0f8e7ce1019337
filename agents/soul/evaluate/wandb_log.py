"""`soul wandb RUN...`: log the numbers and the table of an evaluation to Weights & Biases.

    soul wandb outputs/eval-base-1a2b3c4d --step 50

The client decides where the run goes: WANDB_MODE=offline, WANDB_PROJECT, WANDB_ENTITY, and its key from the environment
or its login. With WANDB_RUN_ID and WANDB_RESUME=allow, several checkpoints share one run and one curve, whose x axis is
the checkpoint's step.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from soul.cli.arguments import existing_folder, non_negative_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.evaluate.numbers.results import Average, Results, summarise_run
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.run_table import SHOWN, lines, titles
from soul.judge.call.usage import total

STEP = "soul/checkpoint_step"


def write(run: EvaluationRun, results: Results, step: int | None = None) -> str:
    """Log the results as one run, and return its URL, or the folder of an offline run.

    Args:
        step: the training step of the checkpoint, for the x axis of curves.

    Raises:
        BadSettings: the client cannot start the run.
    """
    import wandb

    config = {"run": run.folder.name, **run.settings, "limit": run.limit, "n": run.n, "seed": run.seed}
    project = os.environ.get("WANDB_PROJECT", "soul")
    try:
        started = wandb.init(project=project, name=run.name, job_type="evaluation", config=config, dir=str(run.folder))
    except wandb.Error as error:  # no key, no connection, no such project
        raise BadSettings(f"Weights & Biases: {error} WANDB_MODE=offline keeps the run on this machine.") from error
    with started as logged:
        logged.define_metric(STEP)
        logged.define_metric("soul/*", step_metric=STEP)
        columns: list[str | int] = [*titles(results), *(column.title for column in SHOWN)]
        table = wandb.Table(columns=columns, data=[[*line.cells, *line.published] for line in lines(results)])
        numbers = {f"soul/{name}": value for name, value in scalars(results).items()}
        logged.log({**numbers, "soul/table": table, **({} if step is None else {STEP: step})})
        return str(logged.url or Path(logged.dir).parent)


def scalars(results: Results) -> dict[str, float]:
    """`hitom/score`, `hitom/score_low`, `hitom/invalid_share`, ..., and `average/...` over the sets.

    Scores are on the table's scale (the headline times 100); a task's other metrics keep their own. Unknown values have
    no entry: a set without a valid sample has no score, and a model without a price has no cost.
    """
    values: dict[str, float | None] = {}
    for name, result in results.sets.items():
        cost = total(result.usage.values())
        values[f"{name}/invalid_share"] = result.invalid / result.samples if result.samples else None
        values[f"{name}/cost_usd"] = cost.cost_usd if cost.cost_usd or not cost.unpriced else None
        values |= {f"{name}/metrics/{metric}": value for metric, value in result.metrics.items()}
    scored: dict[str, SetResult | Average] = {f"{name}/score": result for name, result in results.sets.items()}
    scored |= {f"average/{name}": average for name, average in results.averages.items()}
    for name, one in scored.items():
        low, high = one.interval or (None, None)
        on_scale = {name: one.mean, f"{name}_low": low, f"{name}_high": high}
        values |= {key: 100 * value for key, value in on_scale.items() if value is not None}
    return {name: value for name, value in values.items() if value is not None}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul wandb", description=__doc__)
    parser.add_argument("runs", nargs="+", type=existing_folder, metavar="RUN", help="folders of evaluations")
    parser.add_argument("--step", type=non_negative_int, help="of the checkpoint, for the x axis of curves")
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("wandb") is None:
        raise BadSettings("Weights & Biases needs the package wandb: pip install wandb")
    for folder in given.runs:
        run = EvaluationRun.load(folder)
        print(write(run, summarise_run(run), given.step))


if __name__ == "__main__":
    sys.exit(main())
