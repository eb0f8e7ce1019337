"""On-policy distillation against its formula: loss and every gradient of an update, to 1e-6 relative; and identities.

Theirs: plain loops over sequences, tokens and the vocabulary in float64. Each task has a teacher, a model of its own
with other weights (and one with another width than the student), evaluated on the ids that the student has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ditto.objectives.test_sdpo import TOLERANCE, divergence, drafts, vocabulary
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
    token: bool,
    alpha: float = 1.0,
    top_k: int | None = 5,
    tail: bool = True,
    ratio_clip: float = 2.0,
    temperature: float = 1.0,
) -> Tensor:
    """agg of min(pi / pi_old, ratio_clip) times the distance of pi from the teacher of the row's task."""
    terms = []
    for i, row in enumerate(rows):
        if row.kind != "draft":
            continue
        new = vocabulary(student, row.prompt_ids, row.response_ids, temperature)
        with torch.no_grad():
            teacher = teachers[0 if TASK_OF[row.prompt] == "hitom" else 1]
            taught = vocabulary(teacher, row.prompt_ids, row.response_ids, temperature)
        terms.append([])
        for t, (y, mask) in enumerate(zip(row.response_ids, row.mask, strict=True)):
            if mask:
                ratio = min(math.exp(new[t, y].item() - old[i][t]), ratio_clip)
                if token:
                    value = (new[t, y] - taught[t, y]).detach() * new[t, y]
                else:
                    value = divergence(new[t], taught[t], alpha, top_k, tail)
                terms[-1].append(ratio * value)
    return _aggregate(terms, mode)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sampled tokens": ("on_policy_distillation", {}, {"token": True}),
    "another bound and temperature": (
        "on_policy_distillation",
        {"ratio_clip": 1.2},
        {"token": True, "ratio_clip": 1.2, "temperature": 0.7},
    ),
    "top k and tail": ("on_policy_distillation_logits", {"top_k": 5}, {"token": False}),
    "no tail": ("on_policy_distillation_logits", {"top_k": 5, "tail": False}, {"token": False, "tail": False}),
    "whole vocabulary": ("on_policy_distillation_logits", {"top_k": None}, {"token": False, "top_k": None}),
    "forward": ("on_policy_distillation_logits", {"top_k": 5, "alpha": 0.0}, {"token": False, "alpha": 0.0}),
}


@pytest.mark.parametrize(("mode", "ranks", "splits"), [("token-mean", 1, 1), ("seq-mean-token-mean", 2, 3)])
@pytest.mark.parametrize("case", CASES)
def test_update_equals_the_formula(
    case: str, mode: str, ranks: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, options, expected_of = CASES[case]
    rows, tasks = drafts(), [TASK_OF[row.prompt] for row in drafts()]
    old = old_log_probs(tiny_model(), rows, perturbed)
    settings = settings_of(name, distill={"teachers": TEACHERS, **options})
    step, data = step_data(rows, old, settings, mode, ranks, monkeypatch, tasks=tasks)
    model, theirs = tiny_model(head=True), tiny_model()
    engine = engine_of(model)
    engine.experts = [engine_of(expert) for expert in experts(head=True)]
    how = {"ranks": ranks, "splits": splits, "temperature": expected_of.get("temperature", 1.0)}
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(model, step, data, mode, settings, update=update, engine=engine, **how)
        theirs.zero_grad()
        of_members = [[values[i] for i in members] for values in (rows, old)]
        expected = formula(theirs, experts(), *of_members, mode, **expected_of)
        assert_same_update(loss, gradients, expected, theirs, TOLERANCE)


@pytest.mark.parametrize("name", ["on_policy_distillation", "on_policy_distillation_logits"])
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
