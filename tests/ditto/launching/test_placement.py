"""On a real Ray cluster of two nodes, the run's own actors are on the driver's node, even if it has no CPUs for Ray."""

import pytest
import ray
from ray.cluster_utils import Cluster

from ditto.launching.placement import with_the_driver

TRIES = 6  # Ray places actors at random


class Actor:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


@pytest.mark.e2e  # two Ray nodes
@pytest.mark.timeout(180)
def test_actors_start_where_the_driver_is() -> None:
    node = {"include_dashboard": False, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **node})
    try:
        cluster.add_node(num_cpus=TRIES, **node)
        ray.init(address=cluster.address, log_to_driver=False)
        actors = [ray.remote(Actor).options(**with_the_driver()).remote() for _ in range(TRIES)]
        anywhere = ray.remote(Actor).remote()
        here = ray.get_runtime_context().get_node_id()
        assert ray.get([actor.node.remote() for actor in actors]) == [here] * TRIES
        assert ray.get(anywhere.node.remote()) != here, "the other node must be able to run an actor"
    finally:
        ray.shutdown()
        cluster.shutdown()
