"""`sky jobs launch`: machines that SkyPilot rents, as recipe/ditto/skypilot/ditto.yaml describes them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import yaml

from recipe.ditto.submit.submission import DOCUMENT, Submission, plain_name
from recipe.ditto.submit.training import ROOT, Training
from soul.errors import BadSettings

TEMPLATE = ROOT / "recipe/ditto/skypilot/ditto.yaml"
VOLUME_HERE = "/work"
ACCELERATOR = "H100"


def submission(training: Training, environment: Mapping[str, str]) -> Submission:
    """The managed job: SkyPilot starts it again on other machines if these are taken away.

    Raises:
        BadSettings: VOLUME is not set.
    """
    training = training.elsewhere()
    if not (volume := environment.get("VOLUME")):
        raise BadSettings(
            "VOLUME is not set: name the SkyPilot volume (`sky volumes ls`) that holds data/ and gets outputs/. With "
            "several nodes it must be one that all of them can write."
        )
    task = {"name": plain_name(training.name), **yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))}
    task["num_nodes"] = training.nodes
    task["workdir"] = str(ROOT)
    task["resources"]["accelerators"] = f"{environment.get('ACCELERATOR') or ACCELERATOR}:{training.gpus}"
    task["volumes"] = {VOLUME_HERE: volume}
    task["envs"] = {**training.variables, "RAY_WORDS": training.ray_words}
    task["run"] = f"{task['run'].rstrip()} {shlex.join(training.words)}\n"
    secrets = [word for name in training.keys for word in ("--secret", name)]
    names = " and ".join(training.keys) or "none"
    keys = f"Keys: sky reads {names} from the environment and keeps them as secrets of the job."
    return Submission(["sky", "jobs", "launch", "--yes", "--detach-run", *secrets, DOCUMENT], keys, dumped(task))


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def dumped(document: Mapping[str, object]) -> str:
    """A document in the order of its keys, with long words on one line."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=10_000)
