"""verl platform for machines without an accelerator: logical devices in Ray, FSDP2 over gloo, vLLM's CPU build.

Most methods of verl's platform interface have nothing to do on a CPU; comments explain the others.
"""

from __future__ import annotations

import os
import types
from contextlib import nullcontext
from typing import Any

import psutil
import torch

# verl registers its FSDP engines for cuda and npu only; this documented variable selects them for other devices.
if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")

from verl.plugin.platform import PlatformBase, PlatformRegistry  # noqa: E402


def _no_op(*_args: Any, **_kwargs: Any) -> None:
    return None


def _zero(*_args: Any, **_kwargs: Any) -> int:
    return 0


class CPUDevice(types.ModuleType):
    """A stand-in for `torch.cuda`: `torch.cpu`, plus no-op memory calls and the CPU's random generator."""

    synchronize = empty_cache = ipc_collect = set_device = reset_peak_memory_stats = staticmethod(_no_op)
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = staticmethod(_zero)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        return False  # verl takes True to mean that there is an accelerator

    def current_device(self) -> str:
        return "cpu"  # with an int, `.to()` would use cuda:N

    def device_count(self) -> int:
        return 1

    def mem_get_info(self, *_args: Any) -> tuple[int, int]:
        """Free and total memory in bytes."""
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device_name(self, *_args: Any) -> str:
        return "CPU"

    def get_rng_state(self, *_args: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_args: Any) -> None:
        torch.set_rng_state(state)


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """verl's last resort, because it is registered after the accelerators. VERL_PLATFORM=cpu selects it."""

    device_name = vendor_name = "cpu"
    device_module = CPUDevice("ditto.cpu_device")
    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = _no_op

    def is_available(self) -> bool:
        return False

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> nullcontext[None]:
        return nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"  # logical GPUs: ray.init(num_gpus=N)

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False  # verl then sends weights through shared memory

    def rollout_env_vars(self) -> dict[str, str]:
        return {
            # vLLM's default, "auto", pins every replica to the same core
            "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
            # saves about 17 s of C++ compilation in the first generation
            "TORCH_COMPILE_DISABLE": os.environ.get("TORCH_COMPILE_DISABLE", "1"),
        }
