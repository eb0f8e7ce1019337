"""SDPO against its formula: loss and every gradient of a whole update, to 1e-6 relative; and what must be identical.

Theirs: plain loops over sequences, tokens and the vocabulary in float64. The teacher is a second model, evaluated on
the prompt with feedback and the draft's own response; it may have other weights than the student.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ditto.objectives.test_formulas import clipped, normed, rewards_of
from tests.ditto.our_step import assert_same_update, engine_of, ours, settings_of, step_data
from tests.ditto.tiny_step import (
    EOS,
    SEQUENCES,
    VOCAB,
    Sequence_,
    _aggregate,
    mini_batches,
    old_log_probs,
    perturbed,
    tiny_model,
)

TOLERANCE = 1e-6
Teachers = dict[str, tuple[int, ...]]  # episode -> ids of the prompt with feedback


def drafts() -> list[Sequence_]:
    """The tiny step's drafts and its failed sessions."""
    return [s for s in SEQUENCES if s.kind in ("draft", "none")]


def feedback_prompts(rows: Sequence[Sequence_]) -> list[tuple[int, ...]]:
    """The prompt of each draft with some feedback ids in front; every third draft has no feedback."""
    return [
        tuple(2 + (7 * i + j) % (VOCAB - 2) for j in range(3 + i % 4)) + s.prompt_ids if s.valid and i % 3 != 2 else ()
        for i, s in enumerate(rows)
    ]


def vocabulary(
    model: torch.nn.Module, prompt: Sequence[int], response: Sequence[int], temperature: float = 1.0
) -> Tensor:
    """log pi(. | prompt, y_<t) for every response token: (tokens, vocabulary)."""
    logits = model(input_ids=torch.tensor([list(prompt) + list(response)])).logits[0]
    logits = logits[len(prompt) - 1 : len(prompt) + len(response) - 1] / temperature
    return logits - logits.exp().sum(-1, keepdim=True).log()


def kl(p: Sequence[Tensor], q: Sequence[Tensor]) -> Tensor:
    return sum(a.exp() * (a - b) for a, b in zip(p, q, strict=True))


def divergence(student: Tensor, teacher: Tensor, alpha: float, top_k: int | None, tail: bool) -> Tensor:
    """Over one token's distributions, outcome by outcome."""
    outcomes = range(len(student)) if top_k is None else student.argsort(descending=True)[:top_k].tolist()
    pairs = [[values[i] for i in outcomes] for values in (student, teacher)]
    if len(outcomes) < len(student):
        totals = [sum(value.exp() for value in values) for values in pairs]
        if tail:
            pairs = [[*values, torch.log(1 - total)] for values, total in zip(pairs, totals, strict=True)]
        else:
            pairs = [[v - total.log() for v in values] for values, total in zip(pairs, totals, strict=True)]
    p, q = pairs
    if alpha == 0:
        return kl(q, p)
    if alpha == 1:
        return kl(p, q)
    mixture = [torch.log((1 - alpha) * a.exp() + alpha * b.exp()) for a, b in zip(p, q, strict=True)]
    return (1 - alpha) * kl(p, mixture) + alpha * kl(q, mixture)


def distilled(
    student: torch.nn.Module,
    row: Sequence_,
    old: Sequence[float],
    teacher: torch.nn.Module,
    prompt: Sequence[int],
    *,
    token: bool,
    alpha: float,
    top_k: int | None = 5,
    tail: bool = True,
    ratio_clip: float = 2.0,
    temperature: float = 1.0,
) -> list[Tensor]:
    """min(pi / pi_old, ratio_clip) times the distance of pi from a teacher that reads this prompt, token by token."""
    new = vocabulary(student, row.prompt_ids, row.response_ids, temperature)
    with torch.no_grad():
        taught = vocabulary(teacher, prompt, row.response_ids, temperature)
    terms = []
    for t, (y, mask) in enumerate(zip(row.response_ids, row.mask, strict=True)):
        if mask:
            ratio = min(math.exp(new[t, y].item() - old[t]), ratio_clip)
            if token:
                value = (new[t, y] - taught[t, y]).detach() * new[t, y]
            else:
                value = divergence(new[t], taught[t], alpha, top_k, tail)
            terms.append(ratio * value)
    return terms


def formula(
    student: torch.nn.Module,
    teacher: torch.nn.Module,
    rows: Sequence[Sequence_],
    prompts: Sequence[tuple[int, ...]],
    old: Sequence[Sequence[float]],
    mode: str,
    *,
    weight: float | None,
    alpha: float = 0.5,
    **how: Any,
) -> Tensor:
    """agg of w_t times the distillation of y_t; with a weight, (1 - weight) L_grpo + weight times that."""
    drafted = [i for i, row in enumerate(rows) if row.kind == "draft"]
    loss = _aggregate(
        [distilled(student, rows[i], old[i], teacher, prompts[i], alpha=alpha, **how) for i in drafted if prompts[i]],
        mode,
    )
    if weight is None:
        return loss
    rewarded = []
    for i in drafted:
        advantage = normed(rows[i].reward, rewards_of(rows[i].prompt, refined=False))
        rewarded.append(clipped(student, rows[i], old[i], advantage))
    return weight * loss - (1 - weight) * _aggregate(rewarded, mode)


TOKEN: dict[str, Any] = {"token": True, "weight": None}
LOGITS: dict[str, Any] = {"token": False, "weight": None}
# name -> objective, options of `sdpo` that the formula takes too, what else the formula takes
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "token": ("sdpo_token", {}, TOKEN),
    "token and grpo": ("sdpo_token_grpo", {"weight": 0.3}, {"token": True}),
    "token, another bound": ("sdpo_token", {"ratio_clip": 1.2}, TOKEN),
    "token, another temperature": ("sdpo_token", {}, TOKEN | {"temperature": 0.7}),
    "logits": ("sdpo_logits", {"top_k": 5}, LOGITS),
    "logits, another temperature": ("sdpo_logits", {"top_k": 5}, LOGITS | {"temperature": 0.7}),
    "logits and grpo": ("sdpo_logits_grpo", {"top_k": 5}, {"token": False, "weight": 0.5}),
    "reverse": ("sdpo_logits", {"top_k": 5, "alpha": 1.0}, LOGITS),
    "forward, no tail": ("sdpo_logits", {"top_k": 5, "alpha": 0.0, "tail": False}, LOGITS),
    "whole vocabulary": ("sdpo_logits", {"top_k": None, "alpha": 0.3}, LOGITS),
}


@pytest.mark.parametrize("case", CASES)
def test_update_equals_the_formula(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options, further = CASES[case]
    mode, ranks, splits = "seq-mean-token-mean", 2, 3
    rows, prompts = drafts(), feedback_prompts(drafts())
    old = old_log_probs(tiny_model(), rows, perturbed)
    settings = settings_of(name, sdpo={"teacher": "live", **options})
    step, data = step_data(rows, old, settings, mode, ranks, monkeypatch, teacher_prompts=prompts)
    model, theirs = tiny_model(head=True), tiny_model()
    how = {"ranks": ranks, "splits": splits, "temperature": further.get("temperature", 1.0)}
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(model, step, data, mode, settings, update=update, **how)
        theirs.zero_grad()
        of_members = [[values[i] for i in members] for values in (rows, prompts, old)]
        expected = formula(theirs, theirs, *of_members, mode, **(options | further))
        assert_same_update(loss, gradients, expected, theirs, TOLERANCE)


@pytest.mark.parametrize("name", ["sdpo_token", "sdpo_logits"])
@pytest.mark.parametrize("kind", ["ema", "base"])
def test_the_teacher_has_the_weights_that_the_option_names(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates by plain gradient descent. ema: (1 - 0.25) start + 0.25 live after the first; base: the start."""
    rows, prompts = drafts(), feedback_prompts(drafts())
    old = old_log_probs(tiny_model(), rows, perturbed)
    options = {"teacher": kind, **({"teacher_rate": 0.25} if kind == "ema" else {}), "top_k": 5}
    settings = settings_of(name, sdpo=options)
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, teacher_prompts=prompts)
    model, student, teacher = tiny_model(head=True), tiny_model(), tiny_model()
    engine = engine_of(model)
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(
            model, step, data, "token-mean", settings, ranks=1, splits=2, update=update, engine=engine
        )
        student.zero_grad()
        of_members = [[values[i] for i in members] for values in (rows, prompts, old)]
        expected = formula(student, teacher, *of_members, "token-mean", token=name == "sdpo_token", weight=None)
        assert_same_update(loss, gradients, expected, student, TOLERANCE)
        with torch.no_grad():
            for parameter, before, mine in zip(
                student.parameters(), teacher.parameters(), model.parameters(), strict=True
            ):
                parameter.sub_(parameter.grad)
                mine.copy_(parameter)
                if kind == "ema":
                    before.mul_(0.75).add_(0.25 * parameter)
        if kind == "ema":
            engine.teacher.move(0.25)


@pytest.mark.parametrize("name", ["sdpo_token", "sdpo_logits"])
def test_a_teacher_that_reads_what_the_student_reads_teaches_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = drafts()
    old = old_log_probs(tiny_model(), rows, None)
    settings = settings_of(name, sdpo={"teacher": "live"})
    prompts = [row.prompt_ids if row.valid else () for row in rows]
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, teacher_prompts=prompts)
    loss, gradients = ours(tiny_model(head=True), step, data, "token-mean", settings, ranks=1, splits=1, update=0)
    assert abs(loss) < 1e-12
    assert all(gradient.abs().max() < 1e-12 for gradient in gradients.values())


def test_the_teacher_reads_what_others_said_between_two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another message of the partner changes what the teacher says of the turn that follows it."""
    rows = [s for s in SEQUENCES if s.kind == "draft" and 0 in s.mask][:1]
    failed = [Sequence_("none", p, f"{p}_9", f"{p}_9", 0.0, False, (EOS,), (EOS,), (0,)) for p in "xy"]
    place = rows[0].mask.index(0)
    ids = list(rows[0].response_ids)
    ids[place] = 2 + (ids[place] - 1) % (VOCAB - 2)
    other = copy.copy(rows[0])
    object.__setattr__(other, "response_ids", tuple(ids))
    losses = []
    for row in (rows[0], other):
        step_rows = [row, *failed]
        old = old_log_probs(tiny_model(), step_rows, None)
        settings = settings_of("sdpo_logits", sdpo={"teacher": "live"})
        prompts = [(5, 6, 7, *row.prompt_ids), (), ()]
        step, data = step_data(step_rows, old, settings, "token-mean", 1, monkeypatch, teacher_prompts=prompts)
        loss, _ = ours(tiny_model(head=True), step, data, "token-mean", settings, ranks=1, splits=1, update=0)
        expected = formula(
            tiny_model(), tiny_model(), step_rows, prompts, old, "token-mean", token=False, weight=None, top_k=100
        )
        assert loss == pytest.approx(expected.item(), rel=TOLERANCE)
        losses.append(loss)
    assert abs(losses[0] - losses[1]) > 1e-6
