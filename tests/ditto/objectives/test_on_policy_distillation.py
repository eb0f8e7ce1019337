"""On-policy distillation against its formula: loss and every gradient of an update, to 1e-6 relative; and identities.

Theirs: plain loops over sequences, tokens and the vocabulary in float64. Each task has a teacher, a model of its own
with other weights (and one with another width than the student), evaluated on the ids that the student has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ditto.objectives.test_sdpo import TOLERANCE, distilled, drafts
from tests.ditto.our_step import assert_same_update, engine_of, ours, settings_of, step_data
from tests.ditto.tiny_step import Sequence_, _aggregate, mini_batches, old_log_probs, perturbed, tiny_model

Model = torch.nn.Module
TASK_OF = {"a": "hitom", "b": "coser", "c": "hitom", "d": "sotopia", "e": "coser"}  # prompt -> task
TEACHERS = {"hitom": "expert_1", "default": "expert_2"}


def experts(*, head: bool = False) -> list[Model]:
    """Two models with other weights than the student, in the order of their checkpoints' names; the second is wider.

    Their weights are float32 numbers, so that `test_worker_runs.py` can use the same ones.
    """
    models = [tiny_model(seed=1, head=head), tiny_model(seed=2, head=head, hidden=24)]
    return [model.float().double() for model in models]


def formula(
    student: Model,
    teachers: Sequence[Model],
    rows: Sequence[Sequence_],
    old: Sequence[Sequence[float]],
    mode: str,
    *,
    alpha: float = 1.0,
    **how: Any,
) -> Tensor:
    """agg of min(pi / pi_old, ratio_clip) times the distance of pi from the teacher of the row's task."""
    terms = []
    for row, before in zip(rows, old, strict=True):
        if row.kind == "draft":
            teacher = teachers[TASK_OF[row.prompt] != "hitom"]
            terms.append(distilled(student, row, before, teacher, row.prompt_ids, alpha=alpha, **how))
    return _aggregate(terms, mode)


TOKEN, LOGITS = "on_policy_distillation", "on_policy_distillation_logits"
# name -> objective, options of `distill` that the formula takes too, what else the formula takes
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sampled tokens": (TOKEN, {}, {"token": True}),
    "another bound and temperature": (TOKEN, {"ratio_clip": 1.2}, {"token": True, "temperature": 0.7}),
    "top k and tail": (LOGITS, {"top_k": 5}, {"token": False}),
    "no tail": (LOGITS, {"top_k": 5, "tail": False}, {"token": False}),
    "whole vocabulary": (LOGITS, {"top_k": None}, {"token": False}),
    "forward": (LOGITS, {"top_k": 5, "alpha": 0.0}, {"token": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_update_equals_the_formula(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options, further = CASES[case]
    mode, ranks, splits = "seq-mean-token-mean", 2, 3
    rows, tasks = drafts(), [TASK_OF[row.prompt] for row in drafts()]
    old = old_log_probs(tiny_model(), rows, perturbed)
    settings = settings_of(name, distill={"teachers": TEACHERS, **options})
    step, data = step_data(rows, old, settings, mode, ranks, monkeypatch, tasks=tasks)
    model, theirs = tiny_model(head=True), tiny_model()
    engine = engine_of(model)
    engine.experts = [engine_of(expert) for expert in experts(head=True)]
    how = {"ranks": ranks, "splits": splits, "temperature": further.get("temperature", 1.0)}
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(model, step, data, mode, settings, update=update, engine=engine, **how)
        theirs.zero_grad()
        of_members = [[values[i] for i in members] for values in (rows, old)]
        expected = formula(theirs, experts(), *of_members, mode, **(options | further))
        assert_same_update(loss, gradients, expected, theirs, TOLERANCE)


@pytest.mark.parametrize("name", [TOKEN, LOGITS])
def test_a_teacher_that_equals_the_student_teaches_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drafts()
    old = old_log_probs(tiny_model(), rows, None)
    settings = settings_of(name, distill={"teachers": {"default": "the student itself"}})
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch)
    engine = engine_of(tiny_model(head=True))
    engine.experts = [engine_of(tiny_model(head=True))]
    loss, gradients = ours(
        engine.module, step, data, "token-mean", settings, ranks=1, splits=2, update=0, engine=engine
    )
    assert abs(loss) < 1e-12
    assert all(gradient.abs().max() < 1e-12 for gradient in gradients.values())


def test_a_teacher_is_not_run_where_it_has_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, tasks = drafts(), [TASK_OF[row.prompt] for row in drafts()]
    settings = settings_of("on_policy_distillation", distill={"teachers": TEACHERS | {"mistakes": "expert_3"}})
    old = old_log_probs(tiny_model(), rows, None)
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, tasks=tasks)
    engine = engine_of(tiny_model(head=True))
    never = engine_of(tiny_model(head=True))
    monkeypatch.setattr(never, "score", lambda *_: pytest.fail("it has no rows"))
    engine.experts = [*(engine_of(expert) for expert in experts(head=True)), never]
    ours(engine.module, step, data, "token-mean", settings, ranks=1, splits=2, update=0, engine=engine)
