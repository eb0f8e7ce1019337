"""The worker's end of a sync of several adapters: each has its number in vLLM. Imported in vLLM's processes."""

from typing import Any

import verl.workers.rollout.vllm_rollout.utils as of_verl

from ditto.policies import ADAPTER, FIRST_NUMBER


class PolicyExtension(of_verl.vLLMColocateWorkerExtension):
    """verl's extension of a vLLM worker, which replaces the adapter of one number with every sync."""

    def update_weights_from_ipc(self, peft_config: dict[str, Any] | None = None, *args: Any, **kwargs: Any) -> None:
        """Load weights, or the adapter whose number is in its config; without one it is verl's own."""
        number = int((peft_config or {}).pop(ADAPTER, FIRST_NUMBER))
        of_verl.VLLM_LORA_INT_ID, of_verl.VLLM_LORA_NAME = number, str(number)
        try:
            super().update_weights_from_ipc(peft_config, *args, **kwargs)
        finally:
            of_verl.VLLM_LORA_INT_ID, of_verl.VLLM_LORA_NAME = FIRST_NUMBER, str(FIRST_NUMBER)
