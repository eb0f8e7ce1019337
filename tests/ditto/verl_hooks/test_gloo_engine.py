"""Weights arrive at every rollout worker as they left the actor; all processes of the actor take them."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ditto.verl_hooks.gloo_engine import GlooCheckpointEngine

ACTORS, ROLLOUTS = 2, 2
BUCKET = 64  # bytes: some tensors share a bucket, one is larger than it

WEIGHTS = {
    "norm": torch.arange(3, dtype=torch.float32),
    "half": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16),
    "embedding": torch.randn(7, 5),
    "transposed": torch.randn(4, 2).t(),
    "scalar": torch.tensor(3.25),
    "steps": torch.tensor([7, 2**40]),
    "byte": torch.tensor([1, 0, 255], dtype=torch.uint8),
    "last": torch.randn(2),
}


def sync(engines: list[GlooCheckpointEngine], weights: dict[str, Tensor]) -> tuple[list[dict[str, Tensor]], list[int]]:
    """What verl's manager does. Returns what each rollout worker got, and how many weights each actor took."""
    actors, rollouts = engines[:ACTORS], engines[ACTORS:]
    topology = GlooCheckpointEngine.build_topology(ACTORS, ROLLOUTS, [engine.prepare() for engine in engines])
    arguments: list[dict[str, Any]] = [
        {name: values[number] for name, values in group.items()}
        for group, size in zip(topology, (ACTORS, ROLLOUTS), strict=True)
        for number in range(size)
    ]
    taken = [0] * ACTORS

    def produced(number: int) -> Iterator[tuple[str, Tensor]]:
        for item in weights.items():
            taken[number] += 1
            yield item

    async def received(engine: GlooCheckpointEngine) -> dict[str, Tensor]:
        return {name: tensor async for name, tensor in engine.receive_weights(global_steps=1)}

    with ThreadPoolExecutor(len(engines)) as pool:
        joins = [
            pool.submit(engine.init_process_group, **given) for engine, given in zip(engines, arguments, strict=True)
        ]
        for join in joins:
            join.result(30)
        sends = [
            pool.submit(asyncio.run, engine.send_weights(produced(number))) for number, engine in enumerate(actors)
        ]
        receipts = [pool.submit(asyncio.run, received(engine)) for engine in rollouts]
        for send in sends:
            send.result(30)
        answers = [receipt.result(30) for receipt in receipts]
    for engine in engines:
        engine.finalize()
    return answers, taken


def test_every_rollout_worker_gets_every_weight_exactly_in_each_sync() -> None:
    engines = [GlooCheckpointEngine(BUCKET, is_master=number == 0) for number in range(ACTORS + ROLLOUTS)]
    for weights in (WEIGHTS, {name: weight + 1 for name, weight in WEIGHTS.items()}):
        answers, taken = sync(engines, weights)
        assert taken == [len(weights)] * ACTORS
        for answer in answers:
            assert list(answer) == list(weights)
            for name, weight in weights.items():
                assert answer[name].dtype == weight.dtype and torch.equal(answer[name], weight), name
