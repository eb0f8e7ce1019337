"""`python -m recipe.ditto.submit BACKEND [--dry-run] TASK [key=value ...]`: check a training and submit it.

recipe/ditto/submit.sh starts it, and its --help describes the backends and their variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from ditto.launching.variables import says_yes
from recipe.ditto.submit import kuberay, ray_job, skypilot, slurm
from recipe.ditto.submit.submission import Submission
from recipe.ditto.submit.training import Training, checked
from soul.cli.error_border import FAILED, Parser, reports_errors
from soul.errors import BadSettings

BACKENDS: Mapping[str, Callable[[Training, Mapping[str, str]], Submission]] = {
    "ray": ray_job.submission,
    "slurm": slurm.submission,
    "skypilot": skypilot.submission,
    "kuberay": kuberay.submission,
}
# Variable -> the backends that read it.
READ_BY = {
    **{name: ("slurm",) for name in ("JUDGE_MODEL_PATH", "JUDGE_GPUS")},
    "VOLUME": ("skypilot", "kuberay"),
    "ACCELERATOR": ("skypilot",),
    **{name: ("kuberay",) for name in ("IMAGE", "SECRET")},
}


def submit(backend: str, task: str, overrides: Sequence[str], dry_run: bool) -> int:
    """Check the training, then print or send what the backend makes of it. Returns the exit code.

    Raises:
        SoulError: the command or its input is wrong; nothing was submitted.
    """
    for name, readers in READ_BY.items():
        if os.environ.get(name) and backend not in readers:
            raise BadSettings(f"{name} belongs to {' and '.join(readers)}; {backend} does not read it. Unset it.")
    if os.environ.get("JUDGE_GPUS") and not os.environ.get("JUDGE_MODEL_PATH"):
        raise BadSettings(
            "JUDGE_GPUS is the size of the judge of JUDGE_MODEL_PATH, which is not set. Set it, or unset JUDGE_GPUS."
        )
    # The judge of the job does not run yet: the job asks it when it starts.
    serves = backend == "slurm" and slurm.serves_judge(os.environ)
    if serves:
        os.environ["JUDGE_MODEL_NAME"] = os.environ["JUDGE_MODEL_PATH"]
    own = ("judge.api_key_env=none",) if serves else ()
    environment = dict(os.environ)
    training, plan = checked(task, [*own, *overrides], environment, asks_judges=not serves)
    submission = BACKENDS[backend](training, environment)
    print(plan)
    print(
        f"{'Would submit' if dry_run else 'Submitting'} to {backend}, for {training.size}:\n\n{submission.shown()}",
        flush=True,
    )
    return 0 if dry_run or submission.send() == 0 else FAILED


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = Parser(prog="python -m recipe.ditto.submit", description=__doc__)
    parser.add_argument("backend", choices=list(BACKENDS), help="where to")
    parser.add_argument("task", metavar="TASK", help="a task, several with commas, or paper")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of the training")
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted (or DRY_RUN=1)")
    given = parser.parse_intermixed_args(arguments)
    dry_run = given.dry_run or says_yes("DRY_RUN", os.environ)
    return submit(given.backend, given.task, given.overrides, dry_run)


if __name__ == "__main__":
    sys.exit(main())
