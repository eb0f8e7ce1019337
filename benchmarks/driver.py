"""Measure the CPU time of the trainer's own process per step, while all devices wait for it.

    python -m benchmarks.driver [--sessions 512 1024 4096] [--turns 30] [--tokens 64]

One step of DITTO goes through the real queue (TransferQueue on a local Ray) and the real trainer: sample, order and
pad, compare with the rollout engine, advantages and weights, traces, metrics, clean-up. Only the devices are simulated:
the worker group writes log-probs of the right shape into the queue and returns at once, and its own time is subtracted.
Each session is one draft and one refined episode of `--turns` turns, so it gives three training sequences. Every turn
of the policy has its own text, three words for four tokens, drawn from the words of Sotopia's example.

Goal: below 1 % of a step of 300 s, and a constant cost per session.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.metric_utils import RolloutMoELoadBalanceMetricsAccumulator
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from benchmarks.side_by_side import console, new_table, print_load
from ditto.batch.queue import KVBatchMeta, tq
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_parts import StepParts
from ditto.launching.compose import load_config
from ditto.old_log_probs import PiOld
from ditto.rollout.sync_alarm import SyncAlarm
from ditto.run.checkpoint_writer import CheckpointWriter
from ditto.run.finite_steps import FiniteSteps
from ditto.run.run_folder import RunFolder
from ditto.settings import Settings
from ditto.trainer_modes import DittoTrainerSync
from soul import examples
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.host_resources import infrequent_gc
from soul.record import SequenceSummary, SessionRecord
from soul.session import RefineSettings, run_session
from soul.testing import FakeOpenAI, fake_gateway, scripted_players

STEP_S, GOAL = 300.0, 0.01
N = 8  # sessions per prompt
KINDS = ("draft", "refined_base", "refined_feedback")
PROMPT_TOKENS, FEEDBACK_TOKENS = 200, 100
PUT_AT_ONCE = 512  # sequences


def composed(folder: Path, sessions: int) -> DictConfig:
    """The recipe's config for a step of `sessions` sessions on two logical devices."""
    words = ["platform=cpu", "algorithm.objective=ditto", "data.train_files=[none]", "data.val_files=[none]"]
    words += [f"data.train_batch_size={sessions // N}", f"actor_rollout_ref.rollout.n={N}", f"run.dir={folder}"]
    return load_config([*words, "judge.base_url=http://127.0.0.1:9/v1"])


def played_session(turns: int) -> SessionRecord:
    """The record of a real Sotopia session, with its dialogue repeated until the policy has had `turns` turns."""
    example = examples.load("sotopia")
    row = example.row(0)
    player = example.player("oracle", row, 0)

    async def play() -> SessionRecord:
        gateway = fake_gateway(FakeOpenAI(example.reply))

        async def say(messages: Sequence[Any]) -> str:
            return player(messages)

        session = await run_session(example.task, row, scripted_players(say), gateway, RefineSettings())
        await gateway.close()
        return session.to_record("benchmark")

    record = asyncio.run(play())
    for attempt in record.attempts:
        for seat, messages in (attempt.seats or {}).items():
            opening, replies = messages[:1], messages[1:]
            attempt.seats[seat] = opening + (replies * (2 * turns // max(1, len(replies)) + 1))[: 2 * turns]
    return record


def sequences(sessions: int, turns: int, tokens: int, trace: SessionRecord) -> Iterator[tuple[str, AgentLoopOutput]]:
    """Yield every sequence of a step with its key in the queue, as the agent loops make them."""
    mask = ([1] * tokens + [0] * tokens) * turns
    said = [m for attempt in trace.attempts for each in (attempt.seats or {}).values() for m in each]
    vocabulary = " ".join(message["content"] for message in said).split()
    for number in range(sessions):
        prompt, place = f"prompt{number // N}", number % N
        session = f"{prompt}_{place}"
        for index, kind in enumerate(KINDS):
            rewards = {
                f"{name}_reward": ((7 * number + 3 * at) % 11) / 10 for at, name in enumerate(("draft", "refined"))
            }
            record = SequenceRecord(kind, prompt, session, True, 2 * turns, **rewards, place=index)
            extra: dict[str, Any] = {"ditto": record.packed(), "min_global_steps": 0, "max_global_steps": 0}
            if index == 0:
                draw = random.Random(number)
                for message in said:  # every turn of the policy has words of its own
                    if message["role"] == "assistant":
                        message["content"] = " ".join(draw.choices(vocabulary, k=max(3 * tokens // 4, 1)))
                trace.session, trace.row, trace.number, trace.model_version = session, number // N, number // N, 0
                trace.out_of_tokens = {"draft": 0, "refined": 0}
                trace.sequences = [
                    SequenceSummary(
                        attempt="draft" if kind == "draft" else "refined",
                        seat="agent1",
                        kind=kind,
                        prompt_tokens=PROMPT_TOKENS,
                        response_tokens=turns * tokens,
                        logp_sampled=-1.0,
                    )
                    for kind in KINDS
                ]
                extra["trace"] = trace.to_line()
            extra["reward_extra_info"] = {}
            length = PROMPT_TOKENS + (FEEDBACK_TOKENS if kind == "refined_feedback" else 0)
            yield (
                f"{session}_{index}",
                AgentLoopOutput(
                    prompt_ids=[1] * length,
                    response_ids=[2] * len(mask),
                    response_mask=mask,
                    response_logprobs=[-1.0] * len(mask),
                    reward_score=record.reward,
                    num_turns=2 * turns,
                    metrics=AgentLoopMetrics(),
                    extra_fields=extra,
                ),
            )


def fill(keyed: Iterator[tuple[str, AgentLoopOutput]]) -> None:
    """Put sequences into the queue with the columns and tags that verl's agent-loop worker writes."""
    keys, fields, tags = [], [], []

    def put() -> None:
        tq.kv_batch_put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id="train")
        for column in (keys, fields, tags):
            column.clear()

    for key, output in keyed:
        field = output.as_dict()
        ids = torch.cat([field["prompts"], field["responses"]])
        field |= {"loss_mask": field["response_mask"], "input_ids": ids, "position_ids": torch.arange(len(ids))}
        field |= {"uid": key.split("_")[0], "session_id": int(key.split("_")[1]), "data_source": "sotopia"}
        field["multi_modal_inputs"] = {}
        keys.append(key)
        fields.append(field)
        sizes = {"prompt_len": len(field["prompts"]), "response_len": len(field["responses"]), "seq_len": len(ids)}
        tags.append(sizes | {"status": "success", "global_steps": 1, "min_global_steps": 0, "max_global_steps": 0})
        if len(keys) == PUT_AT_ONCE:
            put()
    if keys:
        put()


class Clock:
    """CPU seconds of this process by stage, without the time of the simulated devices."""

    def __init__(self) -> None:
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self._devices = 0.0

    @contextmanager
    def devices(self) -> Iterator[None]:
        """Time inside this block counts as the devices'."""
        start = time.process_time()
        yield
        self._devices += time.process_time() - start

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time inside this block counts as the driver's, under this name."""
        self._devices, start = 0.0, time.process_time()
        yield
        self.cpu[name] += time.process_time() - start - self._devices


class Devices:
    """The worker group: writes what the engines would write, outside of the driver's time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._dispatch_info = {"actor": [0, 1]}

    def compute_log_prob(self, batch: KVBatchMeta) -> None:
        with self.clock.devices():
            for start in range(0, len(batch), PUT_AT_ONCE):
                keys = batch.keys[start : start + PUT_AT_ONCE]
                lengths = [tag["seq_len"] for tag in batch.tags[start : start + PUT_AT_ONCE]]
                rows = [torch.full((length,), -1.0) for length in lengths]
                nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
                columns = TensorDict({"log_probs": nested, "entropy": nested}, batch_size=len(keys))
                tq.kv_batch_put(keys=keys, partition_id="train", fields=columns)

    def update_outputs(self, batch: KVBatchMeta) -> None:
        self.compute_log_prob(batch)  # the update writes the same columns

    def update_actor(self, batch: KVBatchMeta) -> dict[str, Any]:
        return {"metrics": {"mfu": 0.0, "grad_norm": 1.0, "lr": 1e-6, "pg_loss": [0.0]}}


class Trainer(DittoTrainerSync):
    """The trainer without engines: everything that its own process does in a step."""

    def __init__(self, config: DictConfig, clock: Clock, folder: Path) -> None:
        self.config = config
        self.settings = Settings.from_config(config)
        self.run_folder = RunFolder(folder)
        judges: Any = SimpleNamespace(stop=None, after_step=lambda _step, _traces: {"judge/failure_share": 0.0})
        self.judges = judges
        self.alarm = SyncAlarm.from_config(config)
        self.actor_rollout_wg = Devices(clock)
        self.tokenizer = SimpleNamespace(eos_token_id=0)
        self.logger = SimpleNamespace(logger={})  # no tracker
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 2)
        self._rollout_moe_lb_metrics_accumulator = RolloutMoELoadBalanceMetricsAccumulator(
            model_config=SimpleNamespace()
        )
        self.global_steps, self.local_trigger_step, self.total_training_steps = 1, 0, 1
        self.use_critic = False
        self._asked_prompts = config.data.train_batch_size
        self.parameter_sync_step = 1  # a step of a synchronous run is one part
        self.parts, self.finite, self._idle_keys = StepParts(), FiniteSteps(), []
        self.pi_old = PiOld.chosen(config, self.settings, [])
        self.checkpoints = CheckpointWriter(config, lambda _name: nullcontext())
        self.replay_buffer = self._build_replay_buffer()


def measured(sessions: int, turns: int, tokens: int, trace: SessionRecord) -> Clock:
    """Run one step of `sessions` sessions."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trainer = Trainer(composed(folder, sessions), clock, folder)
        fill(sequences(sessions, turns, tokens, trace))
        prompts = [f"prompt{number}" for number in range(sessions // N)]
        tags = [{"is_prompt": True, "status": "finished", "global_steps": 1} for _ in prompts]
        tq.kv_batch_put(keys=prompts, partition_id="train", tags=tags)
        metrics: dict[str, Any] = {}
        with clock.stage("sample"):
            batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=len(prompts))
        stages = {
            "order and pad": trainer._balance_batch,
            "old log-probs": trainer._compute_old_log_prob,
            "advantages, traces": trainer._compute_advantage,
            "update": trainer._update_actor,
        }
        for stage, work in stages.items():
            with clock.stage(stage):
                batch = work(batch, metrics)
        with clock.stage("metrics"):
            metrics |= trainer._step_metrics(batch)
            seconds = {"step": STEP_S, "gen": STEP_S / 2, "old_log_prob": 1.0, "adv": 1.0, "update_actor": 1.0}
            trainer._compute_metrics(batch, metrics, seconds, global_steps=1, epoch=0)
        with clock.stage("clean up"):
            tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
    return clock


def show(clocks: dict[int, Clock], turns: int, tokens: int) -> None:
    """Print a table: a row per stage, a column per size."""
    title = f"Driver CPU seconds per step; {turns} turns of {tokens} + {tokens} tokens, {N} sessions per prompt"
    table = new_table(title, "stage", *(f"{sessions:,} sessions" for sessions in clocks))
    for stage in next(iter(clocks.values())).cpu:
        table.add_row(stage, *(f"{clock.cpu[stage]:.2f}" for clock in clocks.values()))
    totals = {sessions: sum(clock.cpu.values()) for sessions, clock in clocks.items()}
    table.add_row("all", *(f"{cpu:.2f}" for cpu in totals.values()))
    table.add_row("ms per session", *(f"{1000 * cpu / n:.2f}" for n, cpu in totals.items()))
    table.add_row(f"share of {STEP_S:.0f} s", *(f"{cpu / STEP_S:.2%}" for cpu in totals.values()))
    console.print(table)
    console.print(f"Goal: the share below {GOAL:.0%}, milliseconds per session constant.")
    print_load()


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.driver", description=__doc__)
    parser.add_argument("--sessions", type=positive_int, nargs="+", default=[512, 1024, 4096])
    parser.add_argument("--turns", type=positive_int, default=30, help="turns of the policy in each episode")
    parser.add_argument(
        "--tokens", type=positive_int, default=64, help="tokens of a turn, and of the others' turns in between"
    )
    args = parser.parse_args(arguments)
    trace = played_session(args.turns)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        tq.init(composed(Path("unused"), N).transfer_queue)
        measured(N, 2, 4, trace)  # imports and first uses
        with infrequent_gc():  # as the trainer's loop runs
            clocks = {n: measured(n, args.turns, args.tokens, trace) for n in args.sessions}
        show(clocks, args.turns, args.tokens)
        tq.close()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
