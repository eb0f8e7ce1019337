"""The memory plan of a run on GPUs: printed by a dry run, and checked before every start.

A step has four phases on the same GPUs, and a fifth where checkpoints teach. *rollout*: vLLM has its share of the GPU;
an offloaded policy is on the host. *log-probs* and *update*: vLLM sleeps, and the policy is on the GPU. *teachers*: a
checkpoint scores a micro-batch of the update, or is loaded. *weight sync*: vLLM has its weights again while the policy
is still on the GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.memory.estimate import (
    Engine,
    HostMemory,
    Memory,
    engine_memory,
    forward_moments,
    host_memory,
    largest,
    shard_bytes,
    trained_shard,
    trained_weights,
    update_moments,
)
from ditto.memory.model_shape import GIB, ModelShape, read_shape
from ditto.memory.remedy import Change, Knobs, find_remedy, lower_limits, overrides
from ditto.memory.setup import KEYS, Setup
from ditto.settings import BadConfig, Settings

ASSUMED_GIB = 79.2  # usable memory of an 80 GB NVIDIA GPU
NARROW = 0.95  # above this share of a GPU, the plan says that a run fits narrowly, because the reserve is an estimate
MOST_SHARE = 0.85  # of a GPU for vLLM in a remedy: the policy's weights need room during a weight sync


@dataclass(frozen=True)
class Machine:
    """The memory that a plan is compared with."""

    gpu_bytes: int
    gpu_source: str  # where gpu_bytes comes from, for messages
    host_bytes: int
    trains: bool  # true if this machine has a GPU, so that it can train

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


@dataclass(frozen=True)
class Phase:
    """One phase on one GPU."""

    name: str
    memory: Memory
    vllm: int
    reserve: int

    @property
    def total(self) -> int:
        """All bytes of the phase."""
        return self.memory.total + self.vllm + self.reserve


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a run needs, and the memory that the machine has."""

    shape: ModelShape
    setup: Setup
    machine: Machine
    teachers: Sequence[ModelShape] = ()  # the checkpoints that teach

    @cached_property
    def engine(self) -> Engine:
        """vLLM on one GPU."""
        return engine_memory(self.shape, self.setup)

    @cached_property
    def host(self) -> HostMemory:
        """The memory of each node."""
        return host_memory(self.shape, self.setup, self.teachers)

    @property
    def cache(self) -> int:
        """Bytes of vLLM's share that are left for keys and values; 0 if its weights alone exceed the share."""
        engine = self.engine
        return max(
            int(self.machine.gpu_bytes * self.setup.utilization) - engine.weights - engine.working - engine.fixed, 0
        )

    @property
    def cached_tokens(self) -> int:
        """Number of tokens whose keys and values fit."""
        return self.cache // self.engine.cache_token

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases of a step."""
        setup, shape, training = self.setup, self.shape, self.setup.training
        share = int(self.machine.gpu_bytes * setup.utilization)
        sleeps = setup.frees_cache and setup.sleep_mode  # weights and cache leave the GPU while the policy is trained
        asleep = (self.engine.fixed if sleeps else share) if setup.colocated else 0
        shard, states = (
            0 if training.offloaded else size
            for size in (shard_bytes(shape, training), trained_shard(shape, training, training.optimizer))
        )
        copy = (
            bool(training.teacher_copies) * (not training.offloaded) * trained_shard(shape, training, training.master)
        )
        resident = Memory(
            weights=0 if setup.param_offload or not setup.colocated else shard + copy,
            optimizer=0 if setup.optimizer_offload or not setup.colocated else states,
        )
        # A micro-batch may have fewer tokens than its limit, if a device gets fewer in the whole update.
        tokens, scored = (min(limit, setup.update_tokens) for limit in (setup.tokens, setup.log_prob_tokens))
        scoring = largest(forward_moments(shape, scored, training, optimizer_here=not setup.optimizer_offload))
        update = self._with_teachers(largest(update_moments(shape, tokens, training)), tokens)
        # Without LoRA, tensors are gathered one by one into a bucket. An adapter is gathered on the host.
        adapter = setup.lora_rank > 0
        gathered = 0 if adapter and not setup.merges_lora else 2 * max(shape.tensors) * setup.master
        weights = max(shard if adapter else 0, resident.weights) + gathered + (setup.bucket_mib << 20)
        sync = Memory(weights=weights, optimizer=resident.optimizer)
        return [
            Phase("rollout", resident, share, resident.reserve if setup.colocated else 0),
            Phase("log-probs", scoring, asleep, scoring.reserve),
            *self._teaching(tokens, asleep),
            Phase("update", update, asleep, update.reserve),
            Phase("weight sync", sync, asleep + self.engine.weights, sync.reserve),
        ]

    def _with_teachers(self, update: Memory, tokens: int) -> Memory:
        """An update in which distributions are compared: what the teachers left for the student's pass."""
        if not self.teachers or not self.setup.compares_logits:
            return update
        heads = sum(teacher.embedding * self.setup.compute for teacher in self.teachers)
        hidden = tokens * max(teacher.hidden for teacher in self.teachers) * self.setup.compute
        return replace(update, weights=update.weights + heads, activations=update.activations + hidden)

    def _teaching(self, tokens: int, asleep: int) -> Iterator[Phase]:
        """The phase of the checkpoints that teach, if any: one scores beside the student, or is loaded on a GPU."""
        if not self.teachers:
            return
        setup, training = self.setup, self.setup.training
        student = largest(update_moments(self.shape, 0, training)[:1])
        shard = 0 if training.offloaded else shard_bytes(self.shape, training)
        teacher = max(self.teachers, key=lambda teacher: teacher.weights)
        scoring = largest(forward_moments(teacher, tokens, setup.scoring))
        taught = Memory(
            weights=shard + max(teacher.weights * setup.compute, scoring.weights),
            gradients=student.gradients,
            optimizer=student.optimizer,
            activations=scoring.activations,
            logits=scoring.logits,
        )
        yield Phase("teachers", taught, asleep, taught.reserve)

    @property
    def problems(self) -> list[str]:
        """The reasons that the run does not fit; empty if it fits."""
        size = self.machine.gpu_bytes
        reasons = [
            f"the {phase.name} phase needs {phase.total / GIB:.1f} GiB of {size / GIB:.1f} GiB"
            for phase in self.phases
            if phase.total > size
        ]
        if self.cached_tokens < self.setup.max_model_len:
            reasons.append(
                f"vLLM's share holds keys and values of {self.cached_tokens:,} tokens, fewer than one sequence may "
                f"have ({self.setup.max_model_len:,})"
            )
        return reasons

    def remedy(self, more_gpus: bool = True) -> Change | None:
        """The changes of the setup that make the run fit; None if none do.

        Args:
            more_gpus: the remedy may use more GPUs.
        """
        change = find_remedy(
            self._knobs(more_gpus), lambda change: not replace(self, setup=replace(self.setup, **change)).problems
        )
        if change is None:
            return None
        return {field: value for field, value in change.items() if getattr(self.setup, field) != value}

    def _knobs(self, more_gpus: bool) -> Knobs:
        """Changes to try, the cheapest first; the values of each, the mildest first."""
        setup = self.setup
        yield [{"fused_head": True}]
        yield [{"checkpointing": True}]
        yield [{"frees_cache": True, "sleep_mode": True}]
        yield [{"param_offload": True, "optimizer_offload": True}]
        yield [{"tokens": limit} for limit in lower_limits(setup.tokens, setup.max_model_len)]
        yield [{"log_prob_tokens": limit} for limit in lower_limits(setup.log_prob_tokens, setup.max_model_len)]
        yield [{"defer_gradients": False}]
        engines = [tp for tp in (1, 2, 4, 8) if tp >= setup.tensor_parallel and setup.gpus % tp == 0]
        for tp in engines:
            if (share := self._least_share(tp)) <= MOST_SHARE:
                yield [{"tensor_parallel": tp}, {"tensor_parallel": tp, "utilization": share}]
        yield [{"offload_policy": True}]
        if more_gpus:
            sizes = [(gpus, setup.nodes) for gpus in (2, 4, 8) if gpus > setup.gpus]
            sizes += [(max(8, setup.gpus), setup.nodes * factor) for factor in (2, 4, 8)]
            for gpus, nodes in sizes:
                tp = max(setup.tensor_parallel, gpus)
                yield [{"gpus": gpus, "nodes": nodes, "tensor_parallel": tp, "utilization": self._least_share(tp)}]

    def _least_share(self, tensor_parallel: int) -> float:
        """The smallest share of a GPU, in steps of 0.05, with which vLLM holds one sequence."""
        engine = engine_memory(self.shape, replace(self.setup, tensor_parallel=tensor_parallel))
        needed = engine.weights + engine.working + engine.fixed + engine.cache_token * self.setup.max_model_len
        return min(-(-20 * needed // self.machine.gpu_bytes) / 20, 0.95)

    def check(self) -> None:
        """Refuse a run that does not fit.

        Raises:
            BadConfig: the message says which phase needs how much memory, and which overrides make it fit.
        """
        host, here = self.host.peak, self.machine.host_bytes
        if problems := self.problems:
            change = self.remedy()
            lora = "" if self.setup.lora_rank else "LoRA (actor_rollout_ref.model.lora_rank=32) "
            advice = (
                f"This fits: {' '.join(overrides(change, KEYS))}"
                if change
                else "No change of batches, offloading or devices makes it fit: use larger GPUs, more nodes, "
                f"{lora}or a smaller model"
            )
            raise BadConfig(
                f"{self.shape.name} does not fit on {self._devices()}: {'; '.join(problems)}. {advice}. If your "
                "GPUs have another size, set memory.gpu_gib"
            )
        if self.machine.trains and host > here:
            raise BadConfig(
                f"{self.shape.name} needs {host / GIB:.0f} GiB of host memory on each node, but this one has "
                f"{here / GIB:.0f}: {self._host_parts()}. Use nodes with more memory, or fewer GPUs per node "
                "(trainer.n_gpus_per_node)."
            )

    def lines(self) -> list[str]:
        """The plan as lines of text."""
        setup, engine = self.setup, self.engine
        names = [field.name for field in fields(Memory)]
        trained = trained_weights(self.shape, setup.training) / 1e9
        how = f"LoRA of rank {setup.lora_rank}" if setup.lora_rank else "full"
        return [
            f"{self.shape.name}: {self.shape.weights / 1e9:.2f} B weights, {trained:.2f} B trained ({how}), on "
            f"{self._devices()}",
            f"{'GiB on each GPU':<24}" + "".join(f"{name:>12}" for name in [*names, "vLLM", "reserve", "total"]),
            *(f"teacher {teacher.name}: {teacher.weights / 1e9:.2f} B weights" for teacher in self.teachers),
            *(self._line(phase, names) for phase in self.phases),
            f"vLLM: weights {engine.weights / GIB:.1f} GiB, working memory "
            f"{(engine.working + engine.fixed) / GIB:.1f}, keys and values {self.cache / GIB:.1f} = "
            f"{self.cached_tokens:,} tokens "
            f"({self.cached_tokens / setup.max_model_len:.1f} sequences of maximal length)",
            f"host: {self._host_parts()}: at most {self.host.peak / GIB:.0f} GiB on each node" + self._host_note(),
            self._verdict(),
        ]

    def _line(self, phase: Phase, names: list[str]) -> str:
        setup = self.setup
        limits = {"log-probs": setup.log_prob_tokens, "update": setup.tokens, "teachers": setup.tokens}
        limit = limits.get(phase.name)
        tokens = f" ({min(limit, setup.update_tokens):,} tokens)" if limit else ""
        numbers: list[Any] = [*(getattr(phase.memory, name) for name in names), phase.vllm, phase.reserve, phase.total]
        return f"{phase.name + tokens:<24}" + "".join(f"{number / GIB:>12.1f}" for number in numbers)

    def _devices(self) -> str:
        setup, machine = self.setup, self.machine
        nodes = f"{setup.nodes} nodes with " if setup.nodes > 1 else ""
        plural = "s" if setup.gpus > 1 else ""
        return f"{nodes}{setup.gpus} GPU{plural} of {machine.gpu_bytes / GIB:.1f} GiB ({machine.gpu_source})"

    def _host_parts(self) -> str:
        host = self.host
        return (
            f"offloaded {host.offloaded / GIB:.0f} GiB, weights of sleeping vLLM {host.vllm / GIB:.0f}, processes "
            f"{host.processes / GIB:.0f}, queue {host.queue / GIB:.0f}, while loading "
            f"{host.loading / GIB:.0f}, while writing a checkpoint {host.export / GIB:.0f}"
            + (f", teachers {host.teachers / GIB:.0f}" if self.teachers else "")
        )

    def _host_note(self) -> str:
        here = self.machine.host_bytes
        if self.machine.trains:
            return f", of {here / GIB:.0f}"
        return f" (this machine has {here / GIB:.0f}, too little to train on)" if self.host.peak > here else ""

    def _verdict(self) -> str:
        if self.problems:
            return f"does not fit: {'; '.join(self.problems)}"
        fullest = max(self.phases, key=lambda phase: phase.total)
        narrowly = " narrowly" if fullest.total > NARROW * self.machine.gpu_bytes else ""
        sizes = f"{fullest.total / GIB:.1f} of {self.machine.gpu_bytes / GIB:.1f} GiB"
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
    return MemoryPlan(shape, setup, Machine.find(OmegaConf.select(config, "memory.gpu_gib")), scoring)
