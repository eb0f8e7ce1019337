"""Patches that verl 0.9.1 and vLLM 0.31 need to run on a CPU, or together. None of the four is active on a GPU.

1. verl 0.9.1 builds the process-group backend "cpu:gloo,cpu:gloo" on a CPU (verl/utils/distributed.py); torch refuses
   a device named twice.
2. verl 0.9.1 builds the forward-only reference model with CPUOffloadPolicy(pin_memory=True); pinning needs an
   accelerator. This happens with fsdp2 and a separate reference model (use_kl_loss without LoRA).
3. vLLM's CPU build packs every linear's weight for oneDNN and deletes `layer.weight` (dispatch_cpu_unquantized_gemm),
   so a weight sync would have nothing to write to. We keep both. verl lets vLLM process its weights again after a sync
   of the whole model, which packs them anew. Packed weights halve the time of a step of 8 sequences or more.
4. vLLM's CPU build copies an adapter's factors once for every token (`lora_b_weights[lora_indices_tensor]`): three
   quarters of the sampling time of a LoRA run. A run has one adapter, so its factors serve all tokens.

On every platform: verl 0.9.1 asks a model's `WeightsMapper` for `get_unstacked_mapper` when it syncs an adapter; vLLM
0.29 named it `get_rename_mapper`, so that the first sync of a LoRA run would fail.

`tests/ditto/verl_hooks/test_compat.py` fails as soon as one of them is no longer needed.

Beside them, a socket of its own for each run's weight sync: verl 0.9.1 names the socket between actor and rollout
engine after Ray's job (`/tmp/rl-colocate-zmq-<job>-...`). The first job of every Ray cluster has the same number, so of
two runs on one machine that sync at the same time one takes the other's socket away: a run hangs, or an engine gets the
other run's weights. The driver gives each run a number (`VARIABLE`, through Ray's runtime environment), and both ends
of the socket add it to the job's.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

VARIABLE = "DITTO_RUN_ID"
_JOB = "VERL_RAY_JOB_ID"  # verl's servers set it for their engines


def _replace(owner: Any, name: str, change: Callable[[Any], Callable[..., Any]]) -> None:
    """Put a changed function in the place of a module's or a class's own, once."""
    original = getattr(owner, name)
    if not getattr(original, "ditto_patched", False):
        changed: Any = functools.wraps(original)(change(original))
        changed.ditto_patched = True
        setattr(owner, name, changed)


def patch_for_cpu() -> None:
    """Apply patches 1 and 2 in this process. Calling it again changes nothing."""
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy

    def once_per_device(join: Any) -> Callable[..., Any]:
        return lambda backend=None, *args, **kwargs: join(
            "gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs
        )

    _replace(dist, "init_process_group", once_per_device)
    _replace(CPUOffloadPolicy, "__init__", lambda init: lambda self, pin_memory=False: init(self, pin_memory=False))


def patch_vllm() -> None:
    """Apply patches 3 and 4, and name the mapper. vLLM calls this in each of its processes (`vllm.general_plugins`).

    It is our only entry into these processes, so what a GPU needs there is set here, too: the name of the run's socket,
    and vLLM's own sampler. FlashInfer's, which vLLM prefers, needs nvcc; requirements/gpu.txt is without FlashInfer.
    """
    name_for_engine()
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    from vllm.model_executor.models.utils import WeightsMapper
    from vllm.platforms import current_platform

    if not hasattr(WeightsMapper, "get_unstacked_mapper"):
        WeightsMapper.get_unstacked_mapper = WeightsMapper.get_rename_mapper
    if not current_platform.is_cpu():
        return
    import vllm.model_executor.layers.utils as layers

    def keep_weight(pack: Any) -> Callable[..., Any]:
        # Not a convolution's, which vLLM would change in place, again with every sync.
        return lambda layer, remove_weight: pack(layer, remove_weight=False) if layer.weight.ndim == 2 else None

    _replace(layers, "dispatch_cpu_unquantized_gemm", keep_weight)
    _share_factors()


def _share_factors() -> None:
    """Let the products of rows and an adapter's factor broadcast a single index over all rows."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    def share(product: Any) -> Callable[..., Any]:
        return lambda inputs, factors, output, adapter_of_row, *args, **kwargs: product(
            inputs, factors, output, adapter_of_row[:1] if len(factors) == 1 else adapter_of_row, *args, **kwargs
        )

    for name in ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice"):
        _replace(lora_ops, name, share)  # for the products of prompts, which call these
        setattr(punica_cpu, name, getattr(lora_ops, name))


def own_name(socket: str, job: str) -> str:
    """The sender's name of the socket, with the run's number after the job's."""
    run = os.environ.get(VARIABLE)
    return socket.replace(f"-{job}-", f"-{job}.{run}-", 1) if run else socket


def name_for_engine() -> None:
    """Let the engine in this process, or started by it, read the name that the sender uses."""
    run, job = os.environ.get(VARIABLE), os.environ.get(_JOB)
    if run and job and not job.endswith(f".{run}"):  # a server's process, the engine's, and its workers' call this
        os.environ[_JOB] = f"{job}.{run}"
