"""A weight sync that does not arrive ends the run; one that does never does."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from ditto.batch.jagged import jagged
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.rollout import sync_alarm
from ditto.rollout.sync_alarm import SyncAlarm, WeightsOutOfSync, distance

ROUNDED, ELSE, NEW = ((1, 2), (-0.5, -0.25)), ((1, 2), (-0.5, -0.2500001)), ((1, 2), (-0.5, -0.26))
BEFORE, AFTER = frozenset({ROUNDED}), frozenset({NEW})


def test_a_distance_above_the_bound_ends_the_run() -> None:
    step = StepBatch([SequenceRecord("draft", "p", "p_0", True)], [])
    engine, mask = jagged([torch.tensor([-1.0, -1.0])]), jagged([torch.tensor([1, 1])])
    for difference, ends in ((0.099, False), (0.12, True)):
        step.columns = Columns(mask, jagged([torch.tensor([-1.0, -1.0 - 2 * difference])]), engine)
        context: Any = pytest.raises(
            WeightsOutOfSync, match=r"Step 2.*differ by 0\.12.*more than 0\.1.*max_logprob_diff"
        )
        with context if ends else nullcontext():
            SyncAlarm(bound=0.1).check_rollout(2, step, [1])


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


def test_an_engine_that_never_changes_is_found_out() -> None:
    alarm = SyncAlarm(bound=0.1, max_unchanged=3)
    alarm.check_change(0, {"a": BEFORE, "b": BEFORE}, updated=False)
    for step in (1, 2):
        alarm.check_change(step, {"a": AFTER if step == 1 else BEFORE, "b": BEFORE}, updated=True)
    with pytest.raises(WeightsOutOfSync, match=r"Step 3: b answers .* 3 updates ago"):
        alarm.check_change(3, {"a": AFTER, "b": BEFORE}, updated=True)


def test_steps_without_an_update_and_single_equal_answers_are_no_reason() -> None:
    alarm = SyncAlarm(bound=0.1, max_unchanged=2)
    alarm.check_change(0, {"a": BEFORE}, updated=False)
    for step, (answer, updated) in enumerate([(BEFORE, False)] * 5 + [(BEFORE, True), (AFTER, True), (AFTER, True)], 1):
        alarm.check_change(step, {"a": answer}, updated=updated)
    with pytest.raises(WeightsOutOfSync):
        alarm.check_change(9, {"a": AFTER}, updated=True)


def test_a_busy_engine_that_rounds_differently_is_found_out_by_one_answer_that_was_there_before() -> None:
    alarm = SyncAlarm(bound=0.1, max_unchanged=2)
    alarm.check_change(0, {"a": frozenset({ROUNDED, ELSE})}, updated=False)
    alarm.check_change(1, {"a": frozenset({ELSE})}, updated=True)
    with pytest.raises(WeightsOutOfSync):
        alarm.check_change(2, {"a": frozenset({NEW, ELSE})}, updated=True)


def test_every_server_is_asked_as_often_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([{"a": ROUNDED, "b": NEW}, {"a": ELSE, "b": NEW}, {"a": ROUNDED, "b": NEW}])
    monkeypatch.setattr(sync_alarm, "_ask_once", lambda _servers, _prompt: next(rounds))
    assert sync_alarm.ask({"a": None, "b": None}, [1], times=3) == {"a": {ROUNDED, ELSE}, "b": {NEW}}
