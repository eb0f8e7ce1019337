"""A vLLM server of several policies: their adapters are loaded at once, and each request says which one samples it.

verl 0.9.1 loads one adapter, with a fixed number, and samples everything with it. Here the server has room for all of
them and for the base model, and the number of a request's adapter comes in `extra_args` (`Policy.sampling`).
"""

from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import ray
from verl.workers.rollout.replica import RolloutReplicaRegistry
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_PATH
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.lora.request import LoRARequest

from ditto.policies import ADAPTER, adapters_of


def with_adapter(generate: Callable[..., AsyncIterator[Any]], *, sampling_params: Any, **request: Any) -> Any:
    """Sample with the adapter whose number the request has; 0 is the base model."""
    number = (sampling_params.extra_args or {}).pop(ADAPTER, None)
    if number is not None:
        name = str(number)
        request["lora_request"] = (
            LoRARequest(lora_name=name, lora_int_id=number, lora_path=VLLM_LORA_PATH) if number else None
        )
    return generate(sampling_params=sampling_params, **request)


class PolicyServer(vLLMHttpServer):
    """verl's server, with several adapters."""

    def _get_worker_extension_cls(self) -> str:
        return "ditto.verl_hooks.policy_extension.PolicyExtension"

    async def run_server(self, args: Namespace) -> None:
        # One place stays empty: vLLM's CPU kernels give the last one to what is sampled from the base model.
        args.max_loras = len(adapters_of(self.model_config.lora)) + 1
        await super().run_server(args)
        self.engine.generate = partial(with_adapter, self.engine.generate)


class PolicyReplica(vLLMReplica):
    """verl's replica, of these servers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(PolicyServer)


def serve_policies() -> None:
    """Let verl start these servers, in this process."""
    RolloutReplicaRegistry.register("vllm", lambda: PolicyReplica)
