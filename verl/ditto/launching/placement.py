"""Placement of a run's own actors: the trainer and the judge actor stay on the driver's node.

Ray places an actor that asks for no resources on any node. The run's folder and its lock are on the driver's, and so
are the keys of its trackers and of its store, which a cluster may give to the head node alone.
"""

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def with_the_driver() -> dict[str, Any]:
    """Options of an actor that its creator, the driver, starts on its own node, which may have no CPUs for Ray."""
    return on_node(ray.get_runtime_context().get_node_id())


def on_node(node: str) -> dict[str, Any]:
    """Options of an actor or a function that runs on the node with this id."""
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
