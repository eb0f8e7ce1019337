"""Patches that verl 0.9.1 and vLLM 0.28 need to run on a CPU. None of the four is active on a GPU.

1. verl 0.9.1 builds the process-group backend "cpu:gloo,cpu:gloo" on a CPU (verl/utils/distributed.py); torch refuses
   a device named twice.
2. verl 0.9.1 builds the forward-only reference model with CPUOffloadPolicy(pin_memory=True); pinning needs an
   accelerator. This happens with fsdp2 and a separate reference model (use_kl_loss without LoRA).
3. vLLM's CPU build packs every linear's weight for oneDNN and deletes `layer.weight` (dispatch_cpu_unquantized_gemm),
   so a weight sync would have nothing to write to. We keep both. verl lets vLLM process its weights again after a sync
   of the whole model, which packs them anew. Packed weights halve the time of a step of 8 sequences or more.
4. vLLM's CPU build copies an adapter's factors once for every token (`lora_b_weights[lora_indices_tensor]`): three
   quarters of the sampling time of a LoRA run. A run has one adapter, so its factors serve all tokens.

`tests/ditto/verl_hooks/test_compat.py` fails as soon as one of them is no longer needed.

Beside them, a socket of its own for each run's weight sync: verl 0.9.1 names the socket between actor and rollout
engine after Ray's job (`/tmp/rl-colocate-zmq-<job>-...`). The first job of every Ray cluster has the same number, so of
two runs on one machine that sync at the same time one takes the other's socket away: a run hangs, or an engine gets the
other run's weights. The driver gives each run a number (`VARIABLE`, through Ray's runtime environment), and both ends
of the socket add it to the job's.
"""

import functools
import os
from typing import Any

VARIABLE = "DITTO_RUN_ID"
_JOB = "VERL_RAY_JOB_ID"  # verl's servers set it for their engines


def patch_for_cpu() -> None:
    """Apply patches 1 and 2 in this process. Calling it again changes nothing."""
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy

    if not getattr(dist.init_process_group, "ditto_patched", False):
        init_process_group = dist.init_process_group

        @functools.wraps(init_process_group)
        def once_per_device(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
            return init_process_group("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

        once_per_device.ditto_patched = True  # type: ignore[attr-defined]
        dist.init_process_group = once_per_device

    if not getattr(CPUOffloadPolicy.__init__, "ditto_patched", False):
        init = CPUOffloadPolicy.__init__

        @functools.wraps(init)
        def unpinned(self: Any, pin_memory: bool = False) -> None:
            init(self, pin_memory=False)

        unpinned.ditto_patched = True  # type: ignore[attr-defined]
        CPUOffloadPolicy.__init__ = unpinned


def patch_vllm() -> None:
    """Apply patches 3 and 4. vLLM calls this in each of its processes (entry-point group `vllm.general_plugins`).

    It is our only entry into these processes, so what a GPU needs there is set here, too: the name of the run's socket,
    and vLLM's own sampler. FlashInfer's, which vLLM prefers, needs nvcc; requirements/gpu.txt is without FlashInfer.
    """
    name_for_engine()
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    _keep_weights()
    _share_factors()


def _keep_weights() -> None:
    import vllm.model_executor.layers.utils as layers

    packed = layers.dispatch_cpu_unquantized_gemm
    if getattr(packed, "ditto_patched", False):
        return

    def dispatch_cpu_unquantized_gemm(layer: Any, remove_weight: bool) -> None:
        if layer.weight.ndim == 2:  # vLLM would change a convolution's weight in place, again with every sync
            packed(layer, remove_weight=False)

    dispatch_cpu_unquantized_gemm.ditto_patched = True  # type: ignore[attr-defined]
    layers.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


def _share_factors() -> None:
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    for name in ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice"):
        product = getattr(lora_ops, name)
        if not getattr(product, "ditto_patched", False):
            shared = _with_shared_factors(product)
            setattr(lora_ops, name, shared)  # for the products of prompts, which call these
            setattr(punica_cpu, name, shared)


def _with_shared_factors(product: Any) -> Any:
    """The product of rows and an adapter's factor; a single index is broadcast over all rows."""

    @functools.wraps(product)
    def shared(inputs: Any, factors: Any, output: Any, adapter_of_row: Any, *args: Any, **kwargs: Any) -> None:
        product(inputs, factors, output, adapter_of_row[:1] if len(factors) == 1 else adapter_of_row, *args, **kwargs)

    shared.ditto_patched = True  # type: ignore[attr-defined]
    return shared


def own_name(socket: str, job: str) -> str:
    """The sender's name of the socket, with the run's number after the job's."""
    run = os.environ.get(VARIABLE)
    return socket.replace(f"-{job}-", f"-{job}.{run}-", 1) if run else socket


def name_for_engine() -> None:
    """Let the engine in this process, or started by it, read the name that the sender uses."""
    run, job = os.environ.get(VARIABLE), os.environ.get(_JOB)
    if run and job and not job.endswith(f".{run}"):  # a server's process, the engine's, and its workers' call this
        os.environ[_JOB] = f"{job}.{run}"
