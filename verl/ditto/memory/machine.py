"""What this machine has: the size of its GPU and of its memory."""

from __future__ import annotations

from dataclasses import dataclass

from ditto.memory.model_shape import GIB

ASSUMED_GIB = 79.2  # what an 80 GB card of NVIDIA's has


@dataclass(frozen=True)
class Machine:
    """What the plan is compared with."""

    gpu_bytes: int
    gpu_source: str  # where the number comes from, for people
    host_bytes: int
    trains: bool  # this machine has the GPUs that train

    @classmethod
    def find(cls, gpu_gib: float | None) -> Machine:
        """This machine, with GPUs of `gpu_gib` GiB if that is given."""
        import psutil
        import torch

        host = psutil.virtual_memory().total
        if torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(0)
            if gpu_gib is None:
                return cls(properties.total_memory, properties.name, host, trains=True)
        if gpu_gib is None:
            source = "assumed: no GPU is here to ask; memory.gpu_gib=... says another size"
            return cls(int(ASSUMED_GIB * GIB), source, host, trains=False)
        return cls(int(gpu_gib * GIB), "memory.gpu_gib", host, trains=torch.cuda.is_available())
