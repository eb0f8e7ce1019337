"""The memory plan of a run: printed by a dry run, and checked before every start.

The numbers for weights, gradients, optimizer and vLLM's cache are exact. Those for activations agree with torch's
memory tracker. What no tracker sees (CUDA contexts, NCCL, fragmentation, host processes) is assumed (docs/sizing.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from omegaconf import DictConfig, OmegaConf

from ditto.memory.machine import Machine
from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.phases import Computed, Phase, compute
from ditto.memory.read_model import read_shape
from ditto.memory.remedy import overrides, remedy
from ditto.memory.setup import Setup
from ditto.memory.training import Memory, trained_weights
from ditto.settings import BadConfig, Settings

NARROW = 0.95  # above this share of a GPU, the plan says that a run fits narrowly, because the reserve is an estimate


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a run needs, and the memory that the machine has."""

    shape: ModelShape
    computed: Computed
    machine: Machine
    teachers: Sequence[ModelShape] = ()  # the checkpoints that teach

    def check(self) -> None:
        """Refuse a run that does not fit.

        Raises:
            BadConfig: the message says which phase needs how much memory, and which overrides make it fit.
        """
        problems = self.computed.problems
        host = self.computed.host.peak
        if problems:
            words = self.remedy()
            lora = "" if self.computed.setup.lora_rank else "LoRA (actor_rollout_ref.model.lora_rank=32) "
            advice = (
                f"This fits: {' '.join(words)}"
                if words
                else "No change of batches, offloading or devices makes it fit: use larger GPUs, more nodes, "
                f"{lora}or a smaller model"
            )
            raise BadConfig(
                f"{self.shape.name} does not fit on {self._devices()}: {'; '.join(problems)}. {advice}. If your "
                "GPUs have another size, set memory.gpu_gib"
            )
        if self.machine.trains and host > self.machine.host_bytes:
            raise BadConfig(
                f"{self.shape.name} needs {host / GIB:.0f} GiB of host memory on each node, but this one has "
                f"{self.machine.host_bytes / GIB:.0f}: {self._host_parts()}. Use nodes with more memory, or fewer GPUs "
                "per node (trainer.n_gpus_per_node)."
            )

    def remedy(self) -> list[str]:
        """The overrides that make the run fit; empty if none do."""
        change = remedy(self.computed, lambda s: compute(s, self.shape, self.computed.gpu_bytes, self.teachers))
        return overrides(change) if change else []

    def lines(self) -> list[str]:
        """The plan as lines of text."""
        setup, vllm = self.computed.setup, self.computed.rollout
        names = [field.name for field in fields(Memory)]
        head = f"{'GiB on each GPU':<24}" + "".join(f"{name:>12}" for name in [*names, "vLLM", "reserve", "total"])
        sequences = vllm.cached_tokens / setup.max_model_len
        cache = max(vllm.cache, 0) / GIB
        return [
            f"{self.shape.name}: {_trained(self.shape, setup)}, on {self._devices()}",
            head,
            *(f"teacher {teacher.name}: {teacher.weights / 1e9:.2f} B weights" for teacher in self.teachers),
            *(self._line(phase, names) for phase in self.computed.phases),
            f"vLLM: weights {vllm.weights / GIB:.1f} GiB, working memory {vllm.working / GIB:.1f}, keys and values "
            f"{cache:.1f} = {vllm.cached_tokens:,} tokens ({sequences:.1f} sequences of maximal length)",
            f"host: {self._host_parts()}: at most {self.computed.host.peak / GIB:.0f} GiB on each node"
            + self._host_note(),
            self._verdict(),
        ]

    def _line(self, phase: Phase, names: list[str]) -> str:
        setup = self.computed.setup
        limits = {"log-probs": setup.log_prob_tokens, "update": setup.tokens, "teachers": setup.tokens}
        limit = limits.get(phase.name)
        tokens = f" ({min(limit, setup.update_tokens):,} tokens)" if limit else ""
        numbers = [*(getattr(phase.memory, name) for name in names), phase.vllm, phase.reserve, phase.total]
        return f"{phase.name + tokens:<24}" + "".join(f"{number / GIB:>12.1f}" for number in numbers)

    def _devices(self) -> str:
        setup = self.computed.setup
        nodes = f"{setup.nodes} nodes with " if setup.nodes > 1 else ""
        plural = "s" if setup.gpus > 1 else ""
        return f"{nodes}{setup.gpus} GPU{plural} of {self.computed.gpu_bytes / GIB:.1f} GiB ({self.machine.gpu_source})"

    def _host_parts(self) -> str:
        host = self.computed.host
        return (
            f"offloaded {host.offloaded / GIB:.0f} GiB, weights of sleeping vLLM {host.vllm / GIB:.0f}, processes "
            f"{host.processes / GIB:.0f}, queue {host.queue / GIB:.0f}, while loading "
            f"{host.loading / GIB:.0f}, while writing a checkpoint {host.export / GIB:.0f}"
            + (f", teachers {host.teachers / GIB:.0f}" if self.teachers else "")
        )

    def _host_note(self) -> str:
        here, needed = self.machine.host_bytes, self.computed.host.peak
        if self.machine.trains:
            return f", of {here / GIB:.0f}"
        return f" (this machine has {here / GIB:.0f}, too little to train on)" if needed > here else ""

    def _verdict(self) -> str:
        if self.computed.problems:
            return f"does not fit: {'; '.join(self.computed.problems)}"
        fullest = max(self.computed.phases, key=lambda phase: phase.total)
        narrowly = " narrowly" if fullest.total > NARROW * self.computed.gpu_bytes else ""
        sizes = f"{fullest.total / GIB:.1f} of {self.computed.gpu_bytes / GIB:.1f} GiB"
        return f"fits{narrowly}: {sizes} at most ({fullest.name})"


def plan(config: DictConfig, teachers: Collection[str] = ()) -> MemoryPlan:
    """The memory plan of a composed config.

    Args:
        teachers: folders or hub ids of the checkpoints that teach.

    Raises:
        BadConfig: the plan does not support the model or a number format.
    """
    model = config.actor_rollout_ref.model
    shape = read_shape(model, "actor_rollout_ref.model")
    scoring = [
        read_shape(OmegaConf.merge(model, {"path": path}), "algorithm.distill.teachers")
        for path in sorted(set(teachers))
    ]
    setup = Setup.from_config(config, Settings.from_config(config).objective)
    machine = Machine.find(OmegaConf.select(config, "memory.gpu_gib"))
    return MemoryPlan(shape, compute(setup, shape, machine.gpu_bytes, scoring), machine, scoring)


def _trained(shape: ModelShape, setup: Setup) -> str:
    trained = trained_weights(shape, setup.training) / 1e9
    how = f"LoRA of rank {setup.lora_rank}" if setup.lora_rank else "full"
    return f"{shape.weights / 1e9:.2f} B weights, {trained:.2f} B trained ({how})"
