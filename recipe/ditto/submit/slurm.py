"""`sbatch`: an allocation of nodes, which recipe/ditto/slurm/ditto.sbatch makes a Ray cluster for the training."""

from __future__ import annotations

from collections.abc import Mapping

from recipe.ditto.submit.submission import Submission
from recipe.ditto.submit.training import ROOT, Training
from soul.errors import BadSettings

SCRIPT = "recipe/ditto/slurm/ditto.sbatch"
JUDGE_GPUS = "8"


def serves_judge(environment: Mapping[str, str]) -> bool:
    """Whether the job serves its own judge, which therefore cannot be asked before."""
    return bool(environment.get("JUDGE_MODEL_PATH"))


def submission(training: Training, environment: Mapping[str, str]) -> Submission:
    """The job. sbatch passes the environment on, and reads its options from SBATCH_PARTITION and the like.

    Raises:
        BadSettings: JUDGE_GPUS is no number.
    """
    nodes = [f"--job-name={training.name}", f"--nodes={training.nodes}"]
    nodes += [f"--gpus-per-node={training.gpus}"] if training.on_gpus else []
    if serves_judge(environment):
        gpus = environment.get("JUDGE_GPUS") or JUDGE_GPUS
        if not (gpus.isdecimal() and int(gpus)):
            raise BadSettings(f"JUDGE_GPUS={gpus}: use a whole number, 1 or more.")
        # The options in the file are those of the first component alone.
        nodes += [":", "--nodes=1", f"--gpus-per-node={gpus}", "--ntasks-per-node=1", "--exclusive", "--mem=0"]
    keys = (
        f"Keys: sbatch passes {' and '.join(training.keys) or 'none'} on with the environment, not on its command line."
    )
    return Submission(["sbatch", *nodes, str(ROOT / SCRIPT), str(ROOT), training.ray_words, *training.words], keys)
