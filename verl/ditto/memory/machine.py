"""The GPU memory and host memory of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from ditto.memory.model_shape import GIB

ASSUMED_GIB = 79.2  # usable memory of an 80 GB NVIDIA GPU


@dataclass(frozen=True)
class Machine:
    """The memory that a plan is compared with."""

    gpu_bytes: int
    gpu_source: str  # where gpu_bytes comes from, for messages
    host_bytes: int
    trains: bool  # whether this machine has a GPU, so that it can train

    @classmethod
    def find(cls, gpu_gib: float | None) -> Machine:
        """Inspect this machine.

        Args:
            gpu_gib: use this as the GPU's size; None: the size of the GPU found here, else an assumed 80 GB GPU.
        """
        import psutil
        import torch

        host, trains = psutil.virtual_memory().total, torch.cuda.is_available()
        if gpu_gib is not None:
            return cls(int(gpu_gib * GIB), "memory.gpu_gib", host, trains)
        if trains:
            gpu = torch.cuda.get_device_properties(0)
            return cls(gpu.total_memory, gpu.name, host, trains)
        source = "assumed, because this machine has no GPU; set memory.gpu_gib for another size"
        return cls(int(ASSUMED_GIB * GIB), source, host, trains)
