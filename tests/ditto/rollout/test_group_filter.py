"""verl's replay buffers: the filter of groups, and what the asynchronous buffer samples.

Buffers and records are real; the queue is in memory.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import replay_buffer as verl_buffer

import ditto.batch.queue
from ditto.batch import metrics
from ditto.batch.queue import KVBatchMeta, drop_trained_rows
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import StepBatch
from ditto.objectives import OBJECTIVES
from ditto.objectives.options import ObjectiveOptions
from ditto.rollout import replay_buffer
from ditto.rollout.group_filter import GroupFilter
from ditto.rollout.replay_buffer import PromptReplayBuffer, PromptReplayBufferAsync
from soul.record import AttemptRecord, Failure, SequenceSummary, SessionRecord

N = 2


class Queue:
    """verl's queue, and the agent loop: a prompt that is asked for is finished at once."""

    def __init__(self, groups: Iterator[list[list[dict[str, Any]]]]) -> None:
        self.groups, self.asked, self.tags = groups, 0, dict[str, dict[str, dict[str, Any]]]()
        self.fields: dict[str, dict[str, Any]] = {}

    def ask(self, prompts: int) -> None:
        train = self.tags.setdefault("train", {})
        for _ in range(prompts):
            uid = f"p{self.asked}"
            self.asked += 1
            train[uid] = {"is_prompt": True, "status": "finished", "global_steps": 1}
            for s, outputs in enumerate(next(self.groups)):
                for index, fields in enumerate(outputs):
                    train[f"{uid}_{s}_{index}"] = {"seq_len": 9}
                    self.fields[f"{uid}_{s}_{index}"] = fields

    def kv_list(self, _partition: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        return self.tags

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> dict[str, Any]:
        assert list(select_fields) == ["extra_fields"] and set(keys) <= set(self.tags[partition_id])
        values = [self.fields[key] for key in keys]
        return {"extra_fields": SimpleNamespace(tolist=lambda: values)}

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[partition_id][key]


def group(drafts: Sequence[float | None], refined: Sequence[float] = (), cause: str = "") -> list[list[dict[str, Any]]]:
    """The outputs of a prompt's sessions. A draft of None has no verdict, because of `cause`."""
    sessions = []
    for number, draft in enumerate(drafts):
        after = refined[number] if refined else None
        kinds = ["draft"] * (draft is not None) + ["refined_base", "refined_feedback"] * bool(refined)
        records = [SequenceRecord(kind, "p", f"p_{number}", True, 2, 5, draft, after) for kind in kinds or ["none"]]
        if not kinds:
            records = [SequenceRecord("none", "p", f"p_{number}", False)]
        failure = Failure("judge", cause, "x") if draft is None else None  # type: ignore[arg-type]
        trace = SessionRecord(task="hitom", number=0, row=0, draft=AttemptRecord(reward=draft, failure=failure))
        known: dict[str, Any] = {"attempt": "draft", "seat": "", "prompt_tokens": 1, "response_tokens": 5}
        trace.sequences = [SequenceSummary(kind=kind, **known) for kind in kinds]
        trace.sequences += [SequenceSummary(kind="other", masked="not in the objective", **known)]
        outputs: list[dict[str, Any]] = [{"ditto": record.packed()} for record in records]
        outputs[0]["trace"] = trace.to_line()
        sessions.append(outputs)
    return sessions


SAME, MIXED, WRONG_THEN_RIGHT = group([1.0, 1.0]), group([0.0, 1.0]), group([0.0, 0.0], [1.0, 1.0])


def filtered(
    groups: Sequence[list[list[dict[str, Any]]]],
    monkeypatch: pytest.MonkeyPatch,
    objective: str = "grpo",
    batches: int = 4,
    mode: str = "sync",
) -> tuple[Any, Queue, GroupFilter]:
    queue = Queue(iter(groups))
    for module in (verl_buffer, replay_buffer):
        monkeypatch.setattr(module, "tq", queue)
    settings: Any = SimpleNamespace(objective=OBJECTIVES[objective], options=ObjectiveOptions())
    config = OmegaConf.create(
        {
            "algorithm": {"filter_groups": {"enable": True, "max_num_gen_batches": batches}},
            "actor_rollout_ref": {"actor": {"loss_agg_mode": "token-mean"}},
        }
    )
    kind: Any = PromptReplayBuffer if mode == "sync" else PromptReplayBufferAsync
    buffer = kind(mode, OmegaConf.create({}), 1, "drop", OmegaConf.create({}), refill_fn=queue.ask)
    buffer.filter = GroupFilter.from_config(config, settings, 2)
    return buffer, queue, buffer.filter


def prompts(batch: KVBatchMeta) -> set[str]:
    return {key.split("_")[0] for key in batch.keys}


def reported(groups: GroupFilter, idle: int = 0) -> tuple[dict[str, float], list[SessionRecord]]:
    """The step's metrics and the traces of its dropped groups, where `idle` groups give no learning signal."""
    step = StepBatch([], [], groups=Counter(idle=idle))
    groups.report(step, 1)
    return metrics.groups(step.groups), step.traces


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_step_has_its_number_of_groups_that_teach(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = [SAME, MIXED, SAME, SAME, MIXED, MIXED, SAME, MIXED]
    buffer, queue, groups = filtered(stream, monkeypatch, mode=mode)
    queue.ask(2)
    batch, metrics = buffer.sample(1, "train", 2)
    assert prompts(batch) == {"p1", "p4"} and queue.asked == 5
    assert not [name for name in metrics if "filter" in name]
    numbers, traces = reported(groups)
    assert (numbers["ditto/groups_dropped"], numbers["ditto/tokens_dropped"]) == (3, 3 * N * 5)
    assert len(traces) == 3 * N and all(trace.dropped for trace in traces)
    reasons = ["group replaced", "not in the objective"]
    assert all([each.masked for each in trace.sequences] == reasons for trace in traces)
    queue.ask(2)  # the next step starts from nothing
    batch, _ = buffer.sample(1, "train", 2)
    assert prompts(batch) == {"p5", "p7"} and reported(groups)[0]["ditto/groups_dropped"] == 1
    assert not [key for key in queue.tags["train"] if "_" not in key]


def test_the_objective_decides_what_teaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All drafts are wrong and all refined answers right: no draft teaches, but the step from one to the other does."""
    for objective, taken in (("ditto", {"p0", "p1"}), ("grpo", {"p1", "p2"})):
        buffer, queue, _ = filtered([WRONG_THEN_RIGHT, MIXED, MIXED], monkeypatch, objective)
        queue.ask(2)
        assert prompts(buffer.sample(1, "train", 2)[0]) == taken


def test_at_the_limit_the_step_trains_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    buffer, queue, groups = filtered([SAME] * 9, monkeypatch, batches=3)
    queue.ask(2)
    batch, _ = buffer.sample(1, "train", 2)
    assert len(prompts(batch)) == 2 and queue.asked == 6  # three batches of two prompts
    assert reported(groups, idle=2)[0]["ditto/groups_dropped"] == 4 and "max_num_gen_batches" in caplog.text


@pytest.mark.parametrize(("cause", "asked"), [("invalid", 4), ("budget", 2), ("outage", 2)])
def test_a_judge_that_is_down_is_not_asked_again(cause: str, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = group([None, None], cause=cause)
    buffer, queue, _ = filtered([lost, lost, MIXED, MIXED], monkeypatch)
    queue.ask(2)
    buffer.sample(1, "train", 2)
    assert queue.asked == asked


# ---- the asynchronous buffer ----------------------------------------------------------------------------------------


def waiting(prompts: Sequence[tuple[str, str, int]], rows: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue with these prompts (name, status, step) and rows."""
    queue = Queue(iter(()))
    queue.tags["train"] = {
        name: {"is_prompt": True, "status": status, "global_steps": step} for name, status, step in prompts
    } | {row: {"status": "success"} for row in rows}
    for module in (verl_buffer, ditto.batch.queue):
        monkeypatch.setattr(module, "tq", queue)
    return queue


def sampled(size: int) -> tuple[list[str], dict[str, Any], list[int]]:
    """The rows of the third step's batch, the metrics, and how many prompts were asked for in place of others."""
    asked: list[int] = []
    options = OmegaConf.create({})
    buffer = PromptReplayBufferAsync("separate_async", options, 2, "drop", options, refill_fn=asked.append)
    batch, numbers = buffer.sample(global_steps=3, partition_id="train", batch_size=size)
    return sorted(batch.keys), numbers, asked


def test_a_prompt_with_a_failed_session_reaches_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would replace it; here the trainer misses its session and ends the run (MissingSessions)."""
    rows = ["a_0_0", "a_1_0", "b_0_0"]
    waiting([("a", "finished", 3), ("b", "failure", 3), ("c", "running", 3)], rows, monkeypatch)
    assert sampled(2) == (rows, {}, [])


def test_a_prompt_that_waited_too_long_is_replaced_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting([("old", "finished", 1), ("new", "finished", 3)], ["old_0_0", "new_0_0"], monkeypatch)
    keys, numbers, asked = sampled(1)
    assert (keys, asked) == (["new_0_0"], [1]) and numbers["training/off_policy/evicted_samples"] == 1


def test_a_restored_queue_forgets_what_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling removes a prompt's own entry; its rows stay until the step has ended, so a checkpoint has them."""
    rows = ["a_0_0", "b_0_0", "trained_0_0", "trained_1_0"]
    queue = waiting([("a", "finished", 3), ("b", "running", 3)], rows, monkeypatch)
    for _ in range(2):
        drop_trained_rows()
        assert sorted(queue.tags["train"]) == ["a", "a_0_0", "b", "b_0_0"]
