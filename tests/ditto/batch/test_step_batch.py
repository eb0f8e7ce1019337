"""The order of a step's rows: mixed over tasks, the same for every order of arrival, another in every step."""

import random

import pytest
import torch
from verl.workers.utils.padding import response_from_nested

from ditto.batch.jagged import jagged, response_tokens
from ditto.batch.minibatch_layout import assign_mini_batches, lay_out, padded_rows
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import StepBatch
from soul.record import AttemptRecord, SessionRecord

TASKS = [f"task{i}" for i in range(9)] + ["userllm"]
PROMPTS, SESSIONS, PER_MINI_BATCH = 64, 2, 16


def step(seed: int) -> StepBatch:
    """A step of a mixture, its sessions in a random order of arrival."""
    sessions = [(p, s) for p in range(PROMPTS) for s in range(SESSIONS)]
    random.Random(seed).shuffle(sessions)
    records = [SequenceRecord("draft", f"p{p}", f"p{p}_{s}", f"p{p}_{s}_draft", 0.5, True) for p, s in sessions]
    traces = [
        SessionRecord(task=TASKS[p % 10], number=p, row=p, session=f"p{p}_{s}", draft=AttemptRecord(reward=0.5))
        for p, s in sessions
    ]
    return StepBatch(records, traces)


def order(seed: int, permutation: str) -> list[str]:
    batch = step(seed)
    batch.sort(permutation)
    return [record.session for record in batch.records]


def test_every_mini_batch_sees_many_tasks_and_no_task_always_comes_last() -> None:
    last, seen = set(), []
    for number in range(20):
        sessions = order(0, f"1:{number}")
        mini_batches = assign_mini_batches([s.rsplit("_", 1)[0] for s in sessions], PER_MINI_BATCH)
        for m in range(max(mini_batches) + 1):
            of_it = {int(s[1:].split("_")[0]) % 10 for s, at in zip(sessions, mini_batches, strict=True) if at == m}
            seen.append(len(of_it))
        last.add(int(sessions[-1][1:].split("_")[0]) % 10)
    assert sum(seen) / len(seen) > 7  # of ten; sorted by task an update saw three
    assert len(last) > 4


def test_the_order_does_not_depend_on_arrival_but_on_the_seed() -> None:
    assert order(1, "1:7") == order(2, "1:7")
    assert order(1, "1:7") != order(1, "1:8")


def test_a_prompt_s_sessions_stay_together() -> None:
    sessions = order(3, "1:1")
    assert [s.split("_")[0] for s in sessions[::2]] == [s.split("_")[0] for s in sessions[1::2]]


def test_the_responses_of_a_column_are_those_that_verl_cuts_out() -> None:
    chance = random.Random(0)
    sizes = [(chance.randint(1, 9), chance.randint(1, 7)) for _ in range(50)]
    column = jagged([torch.rand(prompt + response) for prompt, response in sizes])
    mask = jagged([torch.ones(response, dtype=torch.int64) for _, response in sizes])
    found, expected = response_tokens(column, mask), response_from_nested(column, mask)
    assert torch.equal(found.values(), expected.values()) and torch.equal(found.offsets(), expected.offsets())


@pytest.mark.parametrize("failed", [False, True])
def test_a_mini_batch_without_a_token_gets_one(failed: bool) -> None:
    batch = step(0)
    batch.sort("1:1")
    mini_batch = assign_mini_batches([record.prompt for record in batch.records], PER_MINI_BATCH)
    rows, _ = padded_rows(mini_batch, 1)
    batch.arrange(lay_out(mini_batch, [4] * len(mini_batch), 1, rows, lambda lengths, _: [list(range(len(lengths)))]))
    mask = [torch.tensor([0, 0, 0] if failed and i in batch.rows_of[1] else [1, 0, 1]) for i in range(len(mini_batch))]
    column = jagged(mask)
    counted = batch.counted_tokens(column)
    if not failed:
        assert counted is column
        return
    changed = [i for i, row in enumerate(counted.unbind()) if not torch.equal(row, mask[i])]
    assert changed == batch.rows_of[1][:1] and counted.unbind()[changed[0]].tolist() == [1, 0, 0]
