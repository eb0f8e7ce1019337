"""What the trainer adds to the traces is what the loss gets, row by row, and a masked sequence names its reason.

The rows are those of a step with everything in it: prompts with and without spread, a refined answer that is not the
best, a draft without a teacher, a session without a verdict. Every expected value is read from the columns of the loss
or written down by hand.
"""

import random
from typing import Any

import pytest
import torch

from ditto.batch.jagged import jagged
from ditto.batch.minibatch_layout import assign_mini_batches, balance_by_length, build_layout, padded_rows
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.trace_details import note_correction, note_log_probs, note_plan
from ditto.objectives.losses import ADVANTAGES, LOSS_WEIGHTS
from soul.record import AttemptRecord, SequenceSummary, SessionRecord
from tests.ditto.our_step import settings_of

# prompt -> the rewards of its sessions: draft, refined answer
REWARDS = {"mixed": [(0.0, 1.0), (0.5, 0.25)], "same": [(1.0, 1.0), (1.0, 1.0)], "lost": [(0.25, 0.5), (None, None)]}


def step_of(objective: str, rewards: dict[str, list[Any]] = REWARDS, taught: bool = True) -> StepBatch:
    """A step as the agent loops leave it: a record of each sequence that is trained, a trace of each session."""
    kinds = settings_of(objective).objective.kinds
    records, traces = [], []
    for prompt, sessions in rewards.items():
        for number, (draft, refined) in enumerate(sessions):
            name = f"{prompt}_{number}"
            # A first sequence that nothing trains: a row finds its summary by its place, and not by its order.
            listed = [
                SequenceSummary(attempt="draft", seat="x", kind="x", prompt_tokens=1, response_tokens=0, masked="x")
            ]
            for kind in kinds if draft is not None else ():
                attempt: Any = "draft" if kind == "draft" else "refined"
                seen = (7,) if taught and kind == "draft" else ()
                fields: Any = {"tokens": 3, "draft_reward": draft, "refined_reward": refined, "teacher_prompt": seen}
                records.append(SequenceRecord(kind, prompt, name, True, place=len(listed), **fields))
                listed.append(SequenceSummary(attempt=attempt, seat="p", kind=kind, prompt_tokens=5, response_tokens=3))
            if draft is None:
                records.append(SequenceRecord("none", prompt, name, False))
            trace = SessionRecord(task="tiny", number=0, row=0, session=name, draft=AttemptRecord(reward=draft))
            trace.sequences = listed
            traces.append(trace)
    return StepBatch(records, traces)


def noted(step: StepBatch, objective: str, *, regularised: bool = False, **options: Any) -> dict[tuple[str, str], Any]:
    """The summaries by session and kind, once the step is planned."""
    step.plan([0] * len(step.records), settings_of(objective, **options), "token-mean", 1.0)
    note_plan(step, settings_of(objective).objective, regularised=regularised)
    return {(trace.session, summary.kind): summary for trace in step.traces for summary in trace.sequences}


def masked(found: dict[tuple[str, str], Any], kind: str) -> dict[str, str | None]:
    return {session: summary.masked for (session, of_kind), summary in found.items() if of_kind == kind}


@pytest.mark.parametrize("corrected", [False, True])
def test_the_traces_hold_what_the_loss_gets(corrected: bool) -> None:
    """The whole way of a step: plan, rows without a signal dropped, padding, another order, log-probs, loss columns."""
    chance = random.Random(3)
    step, settings = step_of("ditto"), settings_of("ditto")
    mini_batch = assign_mini_batches([record.prompt for record in step.records], 1)
    step.plan(mini_batch, settings, "token-mean", 1.0)
    note_plan(step, settings.objective, regularised=False)
    kept = step.skip_idle(mini_batch)
    mini_batch = [mini_batch[row] for row in kept]
    rows, updates = padded_rows(mini_batch, 2)
    step.arrange(build_layout(mini_batch, [8] * rows * updates, 2, rows, balance_by_length))
    masks = [[1, 0, 1, 1] if record.place >= 0 else [0] for record in step.records]
    mask = jagged([torch.tensor(each) for each in masks])
    old = torch.tensor([-chance.random() for _ in mask.values()])
    step.columns = Columns(mask, jagged(list(old.split([len(each) for each in masks]))), mask)
    factors = torch.tensor([chance.random() for _ in mask.values()]) if corrected else None
    columns = step.loss_columns(factors)
    if factors is not None:
        note_correction(step, factors)
    note_log_probs(step)

    traces = {trace.session: trace for trace in step.traces}
    advantages, weights = (columns[name].unbind() for name in (ADVANTAGES, LOSS_WEIGHTS))
    log_probs, trained = step.columns.old_log_probs.unbind(), 0
    for row, record in enumerate(step.records):
        if record.place < 0:
            continue
        summary, at = traces[record.session].sequences[record.place], [0, 2, 3]
        assert summary.kind == record.kind
        assert [summary.advantage] * 3 == pytest.approx(advantages[row][at].tolist())
        assert summary.weight == pytest.approx(weights[row][at].mean().item())
        base = pytest.approx(log_probs[row][at].mean().item()) if record.kind != "refined_feedback" else None
        assert summary.logp_base == base
        trained += summary.masked is None
    assert trained == sum(bool(row[0] != 0) for row in advantages) > 4
    skipped = [each for trace in step.traces for each in trace.sequences if each.masked == "zero spread"]
    assert len(skipped) >= 6 and all(each.advantage == 0.0 and each.weight for each in skipped)


def test_a_masked_sequence_names_its_reason() -> None:
    found = noted(step_of("grpo"), "grpo")
    assert masked(found, "draft") == {
        "mixed_0": None,
        "mixed_1": None,
        "same_0": "zero spread",
        "same_1": "zero spread",
        "lost_0": "zero spread",  # alone in its group
    }
    assert set(masked(found, "x").values()) == {"x"}  # what the session knew stays
    middle = noted(step_of("grpo", {"p": [(0.0, None), (0.5, None), (1.0, None)]}), "grpo")
    assert masked(middle, "draft") == {"p_0": None, "p_1": "zero advantage", "p_2": None}
    assert middle["p_1", "draft"].advantage == 0.0


def test_a_distillation_has_a_weight_of_its_own_and_needs_a_teacher() -> None:
    found = noted(step_of("sdpo_token"), "sdpo_token")
    assert set(masked(found, "draft").values()) == {None}
    drafts = [summary for (_, kind), summary in found.items() if kind == "draft"]
    assert [each.distill_weight for each in drafts] == pytest.approx([1 / (3 * len(drafts))] * 5)
    assert {each.advantage for each in drafts} == {each.weight for each in drafts} == {None}
    without = noted(step_of("sdpo_token", taught=False), "sdpo_token")
    assert set(masked(without, "draft").values()) == {"no teacher"}
