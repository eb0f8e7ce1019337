"""`ray job submit`: a job on a Ray cluster that is running, whose nodes see this folder under the same path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from recipe.ditto.submit.submission import Submission
from recipe.ditto.submit.training import ROOT, Training

KEYS = "Keys: the job reads them from the environment of `ray start --head`; Ray would log those of the job itself."


def submission(training: Training, environment: Mapping[str, str]) -> Submission:
    """The job. Its driver runs on the head node, in the current folder."""
    variables = json.dumps({"env_vars": dict(training.variables)})
    run = ["env", f"--chdir={Path.cwd()}", "bash", str(ROOT / "recipe/ditto/run_rl.sh"), *training.words]
    return Submission(["ray", "job", "submit", "--no-wait", "--runtime-env-json", variables, "--", *run], KEYS)
