"""Train as `train_ppo.py` does, in one process: no Ray, no vLLM, one core.

    python -m benchmarks.one_process [--evaluate-every 5] [the words of train_ppo.py]

A run of the demo's model takes minutes with Ray and vLLM, most of them to start processes and to wait for them; a
benchmark of many seeds cannot afford that. This one plays sessions with our agent loop, judges them with our gateway,
computes advantages and losses with our step batch and objectives, and trains with verl's worker and our FSDP2 engine,
from the same composed config. Two things differ: tokens are sampled by plain transformers (`one_process_sampler.py`),
and the trainer's step is written out here without verl's queue (`ditto/trainer.py` is the original).

<run.dir>/metrics.jsonl has the names of a real run, and `heldback/sampled` and `heldback/greedy`: the mean reward of
the validation rows at temperature 1 (SAMPLES a row) and by greedy decoding, every so many steps and at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.trainer.ppo.utils import create_rl_sampler

from benchmarks.one_process_sampler import LocalSampler
from benchmarks.one_process_update import Update
from ditto.launching.compose import TRAIN_PPO, load_config
from ditto.rollout.agent_loop import SoulAgentLoop
from ditto.rows.dataset import SoulDataset
from ditto.run.alarms import raise_alarms
from ditto.run.diagnostics import step_diagnostics
from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import failures_by_cause, session_metrics, summary_line
from ditto.settings import BadConfig, Settings
from ditto.verl_hooks import plugin, worker_config
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import RunFailed
from soul.host_resources import infrequent_gc
from soul.judge import Gateway
from soul.record import SessionRecord

SAMPLES = 4  # per held-back row


class LocalAgentLoop(SoulAgentLoop):
    """Our agent loop with a gateway of this process alone."""

    connected: Gateway | None = None

    async def gateway(self) -> Gateway:
        if self.connected is None:
            self.connected = Gateway.connect(self.settings.gateway, cache_dir=self.settings.cache_dir)
        return self.connected


class OneProcess:
    """A training run.

    Args:
        config: composed and resolved, of the CPU platform.
    """

    def __init__(self, config: DictConfig) -> None:
        self.config = config
        self.settings = Settings.from_config(config)
        self.folder = RunFolder(self.settings.run_dir)
        path = config.actor_rollout_ref.model.path
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        data, rollout = config.data, config.actor_rollout_ref.rollout
        self.rows = SoulDataset(data.train_files, self.tokenizer, data)
        self.heldback = SoulDataset(data.val_files, self.tokenizer, data)
        self.heldback.split = "val"
        self.order = list(create_rl_sampler(data, self.rows))
        self.prompts, self.n = data.train_batch_size, rollout.n
        if config.trainer.total_training_steps * self.prompts > len(self.order):
            raise BadConfig(f"{data.train_files} has {len(self.order)} rows: too few to see each only once.")
        if (rollout.temperature, rollout.top_p) != (1, 1) or rollout.top_k > 0:
            raise BadConfig("The sampler of one process knows temperature 1 only, without top_p and top_k.")
        if config.algorithm.filter_groups.enable:
            raise BadConfig("One process plays the prompts of a step once: algorithm.filter_groups.enable needs Ray.")
        if config.trainer.v1.trainer_mode != "ditto_sync":
            raise BadConfig(
                "One process samples and trains in turns: an asynchronous trainer.v1.trainer_mode needs Ray."
            )
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.sampler = LocalSampler(model, _ends(model, self.tokenizer), data.seed)
        self.update = Update(config, self.settings, self.tokenizer.eos_token_id)
        self.loop = LocalAgentLoop(
            DictConfigWrap(config),
            self.sampler,
            self.tokenizer,
            None,
            SoulDataset,
            DictConfigWrap(data),
            hf_model_type=model.config.model_type,
        )

    async def train(self, steps: int, evaluate_every: int) -> None:
        """Train, and write a line of metrics for every step."""
        for step in range(1, steps + 1):
            start, cpu = time.perf_counter(), time.process_time()
            numbers = await self.step(step)
            numbers |= {"timing_s/step": time.perf_counter() - start, "timing_s/cpu": time.process_time() - cpu}
            if step % evaluate_every == 0 or step == steps:
                numbers |= await self.evaluate(step)
            numbers |= raise_alarms(step, self.settings.objective.name, numbers, self.folder.metrics())
            self.folder.log_metrics(step, numbers)
            print(summary_line(step, steps, numbers), flush=True)

    async def step(self, step: int) -> dict[str, float]:
        """Play the sessions of a step and learn from them. Returns the step's metrics."""
        self.sampler.version = step - 1
        rows = self.order[(step - 1) * self.prompts : step * self.prompts]
        sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
        start = time.perf_counter()
        outputs = await self.play(self.rows, rows, self.n, step, sampling)
        played = time.perf_counter()
        traces = _traces(outputs)
        numbers = self.update(step, outputs, traces)
        self.update.copy_weights(self.sampler.model)
        numbers |= session_metrics(traces) | step_diagnostics(traces)
        numbers |= {"ditto/sessions": len(traces), "judge/failure_share": self._lost_judges(step, traces)}
        times = {"timing_s/rollout": played - start, "timing_s/update": time.perf_counter() - played}
        return numbers | times

    def _lost_judges(self, step: int, traces: Sequence[SessionRecord]) -> float:
        """The share of sessions in which a judge failed.

        Raises:
            RunFailed: it is above judge.max_failure_rate.
        """
        lost, most = failures_by_cause(traces), self.settings.gateway.policy.max_failure_rate
        share = lost.total() / len(traces)
        if share > most:
            raise RunFailed(f"Step {step}: the judge failed in {share:.0%} of the sessions ({dict(lost)}).")
        return share

    async def evaluate(self, step: int) -> dict[str, float]:
        """Mean reward of the held-back rows; failed sessions do not count."""
        self.sampler.version = step
        numbers: dict[str, float] = {}
        for name, temperature, samples in (("sampled", 1.0, SAMPLES), ("greedy", 0.0, 1)):
            rows = range(len(self.heldback))
            outputs = await self.play(self.heldback, rows, samples, step, {"temperature": temperature})
            rewards = [t.draft.reward for t in _traces(outputs) if t.draft.reward is not None]
            if rewards:
                numbers[f"heldback/{name}"] = statistics.fmean(rewards)
        return numbers

    async def close(self) -> None:
        """End the connections to the judges, and the worker."""
        if self.loop.connected is not None:
            await self.loop.connected.close()
        self.update.close()

    async def play(
        self, rows: SoulDataset, numbers: Sequence[int], n: int, step: int, sampling: Mapping[str, Any]
    ) -> list[AgentLoopOutput]:
        """Play `n` sessions of each of these rows, all at a time. Returns their sequences, row by row."""
        sessions = [(rows[number], f"{rows.split}{number}", i) for number in numbers for i in range(n)]
        self.sampler.open(f"{uid}_{i}" for _, uid, i in sessions)

        async def one(fields: dict[str, Any], uid: str, i: int) -> list[AgentLoopOutput]:
            self.sampler.enter(f"{uid}_{i}")
            try:
                return await self.loop.run(dict(sampling), **fields, uid=uid, session_id=i, global_steps=step)
            finally:
                self.sampler.leave(f"{uid}_{i}")

        played = await asyncio.gather(*(one(*session) for session in sessions))
        return list(itertools.chain.from_iterable(played))


def _ends(model: nn.Module, tokenizer: Any) -> list[int]:
    """The ids that end a turn, as an inference engine takes them from the model's folder."""
    ends = model.generation_config.eos_token_id
    return [tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends] if ends is not None else [])]


def _traces(outputs: Sequence[AgentLoopOutput]) -> list[SessionRecord]:
    """The records of the sessions, in the order of `StepBatch.fetch`."""
    lines = [output.extra_fields["trace"] for output in outputs if "trace" in output.extra_fields]
    traces = [SessionRecord.from_line(line, "a step's trace") for line in lines]
    return sorted(traces, key=lambda trace: (trace.task, trace.row, trace.session))


@asynccontextmanager
async def started(words: Sequence[str]) -> AsyncIterator[OneProcess]:
    """A run with the config of this command line, which `train_ppo.py dry_run=true` checks in full."""
    torch.set_num_threads(1)
    config = load_config(list(words), replace(TRAIN_PPO, script="-m benchmarks.one_process"))
    plugin.require("cpu")
    worker_config.resolve(config)
    run = OneProcess(config)  # inside the event loop, which verl's agent loop keeps
    try:
        with infrequent_gc():
            yield run
    finally:
        await run.close()


async def train(words: Sequence[str], evaluate_every: int) -> None:
    """Train as the config says."""
    async with started(words) as run:
        await run.train(run.config.trainer.total_training_steps, evaluate_every)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Train; returns 0."""
    parser = Parser(prog="python -m benchmarks.one_process", description=__doc__)
    parser.add_argument("--evaluate-every", type=positive_int, default=5, help="steps between two evaluations")
    args, words = parser.parse_known_args(arguments)
    asyncio.run(train(words, args.evaluate_every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
