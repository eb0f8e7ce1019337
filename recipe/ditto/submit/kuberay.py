"""`kubectl create`: a RayJob of KubeRay, as recipe/ditto/kuberay/rayjob.yaml describes it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from recipe.ditto.submit.skypilot import VOLUME_HERE, dumped
from recipe.ditto.submit.submission import DOCUMENT, Submission, plain_name
from recipe.ditto.submit.training import OTHER_KEYS, ROOT, Training
from soul.errors import BadSettings

TEMPLATE = ROOT / "recipe/ditto/kuberay/rayjob.yaml"
LAUNCHER = "/opt/ditto/recipe/ditto/run_rl.sh"  # docker/Dockerfile
SECRET = "ditto-keys"
# What the worker pods get too: each downloads the model, and connects to the others.
EVERYWHERE = ("HF_ENDPOINT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
HUB = "HF_TOKEN"  # every pod downloads the model, which may be one that the hub gives to its members only


def submission(training: Training, environment: Mapping[str, str]) -> Submission:
    """The RayJob: the head pod trains too, so there is a worker pod fewer than nodes.

    Raises:
        BadSettings: IMAGE or VOLUME is not set.
    """
    training = training.elsewhere()
    for name, what in (("IMAGE", "the image of docker/Dockerfile"), ("VOLUME", "the PersistentVolumeClaim with data/")):
        if not environment.get(name):
            raise BadSettings(f"{name} is not set: name {what}.")
    secret = environment.get("SECRET") or SECRET
    job = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    job["metadata"]["generateName"] = f"{plain_name(training.name)}-"
    job["spec"]["entrypoint"] = shlex.join(["env", f"--chdir={VOLUME_HERE}", "bash", LAUNCHER, *training.words])
    cluster = job["spec"]["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    workers |= {"replicas": training.nodes - 1, "minReplicas": training.nodes - 1, "maxReplicas": training.nodes - 1}
    for group in (head, workers):
        group["rayStartParams"]["num-cpus"] = str(training.cpus)
        pod = group["template"]["spec"]
        pod["volumes"][0]["persistentVolumeClaim"]["claimName"] = environment["VOLUME"]
        (container,) = pod["containers"]
        container["image"] = environment["IMAGE"]
        container["resources"]["limits"]["nvidia.com/gpu"] = training.gpus
    # The job's driver runs in the head pod, reads the keys and gives those of the judges to the workers in memory.
    container = head["template"]["spec"]["containers"][0]
    container["env"] = [
        *({"name": name, "value": text} for name, text in training.variables.items()),
        *(from_secret(name, secret) for name in training.keys),
    ]
    everywhere = [name for name in training.keys if name == HUB]
    workers["template"]["spec"]["containers"][0]["env"] = [
        *({"name": name, "value": text} for name, text in training.variables.items() if name in EVERYWHERE),
        *(from_secret(name, secret) for name in everywhere),
    ]
    keys = f"Keys: the head pod reads {' and '.join(training.keys) or 'none'} from the Kubernetes secret {secret}"
    keys += f", the worker pods {HUB}." if everywhere else "."
    return Submission(["kubectl", "create", "-f", DOCUMENT], keys, dumped(job))


def from_secret(name: str, secret: str) -> dict[str, Any]:
    """A variable of a container whose value is in a Kubernetes secret; without a judge's key the pod does not start."""
    optional = {"optional": True} if name in OTHER_KEYS else {}
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name, **optional}}}
