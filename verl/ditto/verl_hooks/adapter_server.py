"""The end of a weight sync beside a vLLM server: what comes from a checkpoint engine may be an adapter.

Apart from `adapter_sync.py`, because importing verl's vLLM rollout takes seconds.
"""

from typing import Any

import ray
from verl.workers.rollout.vllm_rollout import ServerAdapter

from ditto.verl_hooks.adapter_sync import split
from ditto.verl_hooks.compat import own_name


class AdapterServer(ServerAdapter):
    """verl's connection to a vLLM server."""

    zmq_handle: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.zmq_handle = own_name(self.zmq_handle, ray.get_runtime_context().get_job_id())

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, wire_format: str = "named_tensors", **kwargs: Any
    ) -> None:
        if "peft_config" not in kwargs:  # from a checkpoint engine; an actor on the same devices passes it
            config, weights = await split(weights)
            kwargs |= {"peft_config": config, "base_sync_done": True} if config is not None else {}
        await super().update_weights(weights, global_steps=global_steps, wire_format=wire_format, **kwargs)
