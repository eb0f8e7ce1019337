"""verl platform for machines without an accelerator: logical devices in Ray, FSDP2 over gloo, vLLM's CPU build.

Most methods of verl's platform interface have nothing to do on a CPU; comments explain the others.
"""

import os
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import psutil
import torch

# verl registers its FSDP engines for cuda and npu only; this documented variable selects them for other devices.
if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")

from verl.plugin.platform import PlatformBase, PlatformRegistry  # noqa: E402


def _returns(value: Any) -> Callable[..., Any]:
    """A method that ignores its arguments and returns this."""
    return lambda *_args, **_kwargs: value


_no_op, _zero = _returns(None), _returns(0)


class CPUDevice(types.ModuleType):
    """A stand-in for `torch.cuda`: `torch.cpu`, plus no-op memory calls and the CPU's random generator."""

    synchronize = empty_cache = ipc_collect = set_device = reset_peak_memory_stats = _no_op
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _zero
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    is_available = _returns(False)  # verl takes True to mean that there is an accelerator
    current_device = _returns("cpu")  # with an int, `.to()` would use cuda:N
    device_count = _returns(1)
    get_device_name = _returns("CPU")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def mem_get_info(self, *_args: Any) -> tuple[int, int]:
        """Free and total memory in bytes."""
        memory = psutil.virtual_memory()
        return memory.available, memory.total

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
    is_available = is_ipc_supported = _returns(False)  # without IPC verl sends weights through shared memory
    is_platform_available = _returns(True)
    current_device = _returns("cpu")
    device_count = _returns(1)
    get_device_capability = _returns((None, None))
    communication_backend_name = _returns("gloo")
    visible_devices_envvar = _returns("CUDA_VISIBLE_DEVICES")
    ray_resource_name = _returns("GPU")  # logical GPUs: ray.init(num_gpus=N)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def nvtx_range(self, msg: str) -> nullcontext[None]:
        return nullcontext()

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def rollout_env_vars(self) -> dict[str, str]:
        return {
            # vLLM's default, "auto", pins every replica to the same core
            "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
            # saves about 17 s of C++ compilation in the first generation
            "TORCH_COMPILE_DISABLE": os.environ.get("TORCH_COMPILE_DISABLE", "1"),
        }
