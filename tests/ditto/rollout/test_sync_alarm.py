"""A weight sync that does not arrive ends the run; one that does never does."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from ditto.batch.jagged import jagged
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.rollout.sync_alarm import SyncAlarm, WeightsOutOfSync, distance

ROUNDED, ELSE, NEW = ((1, 2), (-0.5, -0.25)), ((1, 2), (-0.5, -0.2500001)), ((1, 2), (-0.5, -0.26))
BEFORE, AFTER = frozenset({ROUNDED}), frozenset({NEW})


def test_a_distance_above_the_bound_ends_the_run() -> None:
    step = StepBatch([SequenceRecord("draft", "p", "p_0", True)], [])
    engine, mask = jagged([torch.tensor([-1.0, -1.0])]), jagged([torch.tensor([1, 1])])
    for difference, policy, named in ((0.099, "", ""), (0.12, "", "Step 2: "), (0.12, "user", "Step 2, policy user: ")):
        step.columns = Columns(mask, jagged([torch.tensor([-1.0, -1.0 - 2 * difference])]), engine)
        said = rf"{named}.*differ by 0\.12.*more than 0\.1.*max_logprob_diff"
        context: Any = pytest.raises(WeightsOutOfSync, match=said)
        with context if difference > 0.1 else nullcontext():
            SyncAlarm(bound=0.1).check_rollout(2, step, [1], policy)


@pytest.mark.parametrize(
    "dtype, given, bound", [("float32", None, 0.05), ("bfloat16", None, 0.1), ("bfloat16", 0.3, 0.3)]
)
def test_the_bound_is_the_precision_s_unless_it_is_given(dtype: str, given: float | None, bound: float) -> None:
    run = {"max_logprob_diff": given, "max_unchanged_syncs": 3}
    config = OmegaConf.create({"run": run, "actor_rollout_ref": {"rollout": {"dtype": dtype}}})
    assert SyncAlarm.from_config(config).bound == bound


def test_the_distance_is_the_mean_over_the_sampled_tokens_of_the_chosen_rows() -> None:
    actor = jagged([torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-1.0]), torch.tensor([-4.0, -4.0])])
    engine = jagged([torch.tensor([-1.5, -9.0, -3.25]), torch.tensor([-9.0]), torch.tensor([-4.0, -5.0])])
    mask = jagged([torch.tensor([1, 0, 1]), torch.tensor([1]), torch.tensor([1, 1])])
    found, metrics = distance(actor, engine, mask, [True, False, True])
    assert found == pytest.approx((0.5 + 0.25 + 0.0 + 1.0) / 4)
    assert metrics["training/rollout_probs_diff_valid"] == 1
    assert distance(actor, engine, mask, [False, False, False]) == (None, {})


@pytest.mark.parametrize(
    ("most", "answers", "updates"),
    [
        (3, [BEFORE, BEFORE, BEFORE, BEFORE], [False, True, True, True]),
        # steps without an update and single equal answers are no reason
        (2, [BEFORE] * 7 + [AFTER] * 3, [False] * 6 + [True] * 4),
        # a busy engine rounds differently: one answer that was there before is enough
        (2, [{ROUNDED, ELSE}, {ELSE}, {NEW, ELSE}], [False, True, True]),
    ],
)
def test_an_engine_that_never_changes_is_found_out(most: int, answers: list[Any], updates: list[bool]) -> None:
    alarm = SyncAlarm(bound=0.1, max_unchanged=most)
    for step, (answer, updated) in enumerate(zip(answers, updates, strict=True)):
        other = AFTER if step % 2 else BEFORE
        last = step == len(answers) - 1
        with pytest.raises(WeightsOutOfSync, match=rf"Step {step}: b .* {most} upd") if last else nullcontext():
            alarm.check_change(step, {"a": other, "b": frozenset(answer)}, updated=updated)


def test_a_lost_sync_of_one_adapter_is_found_and_named() -> None:
    alarm = SyncAlarm(0.1, max_unchanged=2)
    for step in range(3):
        answers = {
            f"rollout server 0 with the adapter of {policy}": frozenset({((1,), (log_prob,))})
            for policy, log_prob in (("user", -1.0 - step / 10), ("assistant", -1.0))
        }
        lost = pytest.raises(WeightsOutOfSync, match="Step 2: rollout server 0 with the adapter of assistant answers")
        with lost if step == 2 else nullcontext():
            alarm.check_change(step, answers, updated=step > 0)
