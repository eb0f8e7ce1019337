"""The order of a step's rows: mixed over tasks, the same for every order of arrival, another in every step."""

import math
import random

import pytest
import torch
from verl.workers.utils.padding import response_from_nested

from ditto.batch import metrics as batch_metrics
from ditto.batch.jagged import jagged, response_tokens
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from soul.record import AttemptRecord, SessionRecord
from tests.ditto.our_step import settings_of

pytestmark = pytest.mark.smoke

TASKS = [f"task{i}" for i in range(9)] + ["userllm"]
PROMPTS, SESSIONS, PER_MINI_BATCH = 64, 2, 16


def step(seed: int) -> StepBatch:
    """A step of a mixture, its sessions in a random order of arrival."""
    sessions = [(p, s) for p in range(PROMPTS) for s in range(SESSIONS)]
    random.Random(seed).shuffle(sessions)
    records = [SequenceRecord("draft", f"p{p}", f"p{p}_{s}", True, draft_reward=0.5) for p, s in sessions]
    traces = [
        SessionRecord(task=TASKS[p % 10], number=p, row=p, session=f"p{p}_{s}", draft=AttemptRecord(reward=0.5))
        for p, s in sessions
    ]
    return StepBatch(records, traces)


def order(seed: int, permutation: str) -> list[str]:
    batch = step(seed)
    batch.sort(permutation)
    return [record.session for record in batch.records]


def test_the_order_does_not_depend_on_arrival_but_on_the_seed() -> None:
    assert order(1, "1:7") == order(2, "1:7")
    assert order(1, "1:7") != order(1, "1:8")


def test_the_responses_of_a_column_are_those_that_verl_cuts_out() -> None:
    chance = random.Random(0)
    sizes = [(chance.randint(1, 9), chance.randint(1, 7)) for _ in range(50)]
    column = jagged([torch.rand(prompt + response) for prompt, response in sizes])
    mask = jagged([torch.ones(response, dtype=torch.int64) for _, response in sizes])
    found, expected = response_tokens(column, mask), response_from_nested(column, mask)
    assert torch.equal(found.values(), expected.values()) and torch.equal(found.offsets(), expected.offsets())


def test_what_a_step_does_not_compute_is_counted() -> None:
    """Three prompts of two drafts, one with equal rewards; the second part of the step has none."""
    rewards = {"a": (0.0, 1.0), "b": (0.5, 0.5), "c": (0.25, 0.75)}
    records = [
        SequenceRecord("draft", prompt, f"{prompt}_{i}", True, tokens=4, draft_reward=reward)
        for prompt, drafts in rewards.items()
        for i, reward in enumerate(drafts)
    ]
    batch = StepBatch(records, [])
    batch.plan([0] * 6, settings_of("grpo"), "token-mean", 1.0)
    assert batch_metrics.groups(batch.groups)["ditto/groups_idle"] == 1
    assert "ditto/sequences_skipped" not in batch_metrics.groups(batch.groups)
    batch.groups.update(skipped=2, tokens_skipped=30, tokens=100)
    assert batch_metrics.groups(batch.groups) == {
        "ditto/groups": 3.0,
        "ditto/groups_idle": 1.0,
        "ditto/sequences_skipped": 2.0,
        "ditto/share_tokens_skipped": 0.3,
    }


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_means_are_over_the_rows_that_are_computed(mode: str) -> None:
    rewards = {"p": [1.0, 0.0], "q": [1.0] * 6}
    records = [
        SequenceRecord("draft", prompt, f"{prompt}_{i}", True, tokens=3 + i, draft_reward=reward)
        for prompt, drafts in rewards.items()
        for i, reward in enumerate(drafts)
    ]
    batch = StepBatch(list(records), [])
    batch.plan([0] * 8, settings_of("grpo"), mode, 1.0)
    kept = batch.skip_idle([0] * 8)
    alone = StepBatch([records[row] for row in kept], [])
    alone.plan([0] * len(kept), settings_of("grpo"), mode, 1.0)
    assert kept == [0, 1]
    assert [record.loss.mean for record in batch.records] == [record.loss.mean for record in alone.records]


@pytest.mark.parametrize("normalise", [False, True])
def test_rows_of_another_context_weigh_one_and_are_in_no_mean(normalise: bool) -> None:
    mask = jagged([torch.ones(4, dtype=torch.int64)] * 2)
    old, sampled = jagged([torch.full((4,), -1.0)] * 2), jagged([torch.full((4,), -0.5), torch.full((4,), -9.0)])
    config = {"rollout_is": "token", "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": normalise}
    step = StepBatch([SequenceRecord(kind, "p", "p_0", True) for kind in ("draft", "refined_base")], [])
    step.columns = Columns(mask, old, sampled)
    corrected = step.correction(config)
    assert corrected is not None
    weights, metrics = corrected
    assert weights[4:].tolist() == [1.0] * 4
    assert weights[:4].tolist() == pytest.approx([1.0 if normalise else math.exp(-0.5)] * 4)
    assert metrics["rollout_corr/kl"] == pytest.approx(0.5)
    step.records = step.records[1:] * 2
    assert step.correction(config) is None


def test_the_kl_to_the_start_is_that_of_the_drafts() -> None:
    """Over all outcomes, weighted by the policy: both estimators then have the exact KL as their mean."""
    policy, start = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.25, 0.5])
    tokens = torch.tensor([0, 0, 1, 2])  # as often as the policy says
    records = [SequenceRecord(kind, "p", "p_0", True) for kind in ("draft", "refined_base", "draft")]
    mask = jagged([torch.tensor(row) for row in ([1, 0, 1], [1], [1, 1])])
    nothing = torch.tensor([-7.0])

    def column(probabilities: torch.Tensor) -> torch.Tensor:
        of_tokens = probabilities.log()[tokens]
        return jagged([torch.cat([of_tokens[:1], nothing, of_tokens[1:2]]), nothing, of_tokens[2:]])

    step = StepBatch(records, [])
    step.columns = Columns(mask, column(policy), column(policy))
    assert batch_metrics.kl_to_start(step) == {}  # no reference policy
    step.reference = column(start)
    exact = (policy * (policy / start).log()).sum().item()
    numbers = batch_metrics.kl_to_start(step)
    assert numbers == pytest.approx({"ditto/kl_start": exact, "ditto/log_ratio_start": exact})
