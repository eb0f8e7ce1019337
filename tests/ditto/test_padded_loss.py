"""`ditto.loss`, for trainers of one's own: the formulas of every objective, on padded tensors, without verl."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ditto
from ditto.objectives.loss_weights import LOSS_AGG_MODES
from soul.errors import SoulError
from tests.ditto.objectives import test_formulas, test_sdpo
from tests.ditto.tiny_step import LOSS_SCALE, SEQUENCES, Sequence_, mini_batches, old_log_probs, perturbed, tiny_model

ROOT = Path(__file__).resolve().parents[2]
DRAFTS, REFINED = test_formulas.DRAFTS, test_formulas.REFINED


def padded(rows: Sequence[Sequence[Any]], width: int) -> Tensor:
    values = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.float64)
    return values.long() if isinstance(rows[0][0], int) else values


def padded_logits(model: torch.nn.Module, rows: Sequence[Sequence_], prompts: Sequence[Sequence[int]]) -> Tensor:
    """The log-probs of the vocabulary at every response token: (rows, tokens, vocabulary)."""
    width = max(len(row.response_ids) for row in rows)
    each = [test_sdpo.vocabulary(model, prompt, row.response_ids) for row, prompt in zip(rows, prompts, strict=True)]
    return torch.stack([torch.nn.functional.pad(values, (0, 0, 0, width - len(values))) for values in each])


def described(rows: Sequence[Sequence_], prompts: Sequence[Sequence[int]] | None = None) -> list[ditto.Sequence]:
    """The rows as a trainer of one's own names them."""
    return [
        ditto.Sequence(
            row.kind,  # type: ignore[arg-type]  # "none" for a failed session, as the agent loop gives it
            row.prompt,
            row.session,
            DRAFTS.get(row.session),
            REFINED.get(row.session),
            taught=prompts is None or bool(prompts[number]),
        )
        for number, row in enumerate(rows)
    ]


def assert_equal(model: torch.nn.Module, loss: float, theirs: torch.nn.Module, expected: Tensor) -> None:
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)
    for mine, other in zip(model.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None and other.grad is not None
        assert (mine.grad - other.grad).norm() <= 1e-6 * other.grad.norm()


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("case", "mode"),
    [*((case, "token-mean") for case in test_formulas.CASES), *(("ditto", mode) for mode in LOSS_AGG_MODES[1:])],
)
def test_the_micro_batches_add_up_to_the_formula(case: str, mode: str) -> None:
    objective, options, kinds, formula = test_formulas.CASES[case]
    step, before = test_formulas.step_of(kinds)
    for members in mini_batches(step):
        rows, old = [step[i] for i in members], [before[i] for i in members]
        width = max(len(row.response_ids) for row in rows)
        mask, model, total = padded([row.mask for row in rows], width).bool(), tiny_model(), 0.0
        for part in (range(0, len(rows), 2), range(1, len(rows), 2)):
            logits = padded_logits(model, [rows[i] for i in part], [rows[i].prompt_ids for i in part])
            ids = padded([rows[i].response_ids for i in part], logits.shape[1])
            new = torch.nn.functional.pad(logits.gather(-1, ids[..., None])[..., 0], (0, width - logits.shape[1]))
            value, metrics = ditto.loss(
                objective,
                described(rows),
                new,
                mask,
                rows=part,
                old_log_probs=padded([old[i] for i in part], width),
                options=options,
                loss_agg_mode=mode,
                loss_scale_factor=LOSS_SCALE,
            )
            value.backward()
            total += value.item()
            assert sum(number for name, number in metrics.items() if name.endswith("/loss")) == pytest.approx(
                value.item()
            )
        theirs = tiny_model()
        assert_equal(model, total, theirs, formula(theirs, rows, old, mode))


@pytest.mark.parametrize("case", [name for name in test_sdpo.CASES if "temperature" not in name])
def test_a_distillation_equals_its_formula(case: str) -> None:
    name, options, further = test_sdpo.CASES[case]
    compared = {key: options[key] for key in ("alpha", "top_k", "tail") if key in options}
    rows, prompts = [s for s in SEQUENCES if s.kind == "draft"], test_sdpo.feedback_prompts(test_sdpo.drafts())
    prompts = [p for p, s in zip(prompts, test_sdpo.drafts(), strict=True) if s.kind == "draft"]
    old = old_log_probs(tiny_model(), rows, perturbed)
    model, theirs = tiny_model(), tiny_model()
    logits = padded_logits(model, rows, [row.prompt_ids for row in rows])
    with torch.no_grad():
        taught = padded_logits(
            model, rows, [prompt or row.prompt_ids for prompt, row in zip(prompts, rows, strict=True)]
        )
    width = logits.shape[1]
    ids = padded([row.response_ids for row in rows], width)[..., None]
    new, teacher = (each.gather(-1, ids)[..., 0] for each in (logits, taught))
    token = further["token"]
    loss, _ = ditto.loss(
        name,
        described(rows, prompts),
        new,
        padded([row.mask for row in rows], width).bool(),
        old_log_probs=padded(old, width),
        teacher_log_probs=teacher if token else None,
        divergence=None if token else ditto.divergence(logits, taught, compared),
        options={"sdpo": {key: value for key, value in options.items() if key not in compared}},
    )
    loss.backward()
    expected = test_sdpo.formula(theirs, theirs, rows, prompts, old, "token-mean", **(options | further))
    assert_equal(model, loss.item(), theirs, expected)


def test_its_page_runs_without_verl() -> None:
    hidden = ("verl", "tensordict", "ray", "vllm", "transformers", "omegaconf", "hydra")
    page = (ROOT / "docs" / "own_trainer.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = "\n".join([f"import sys; sys.modules |= dict.fromkeys({hidden})", *blocks])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 2


@pytest.mark.parametrize(
    ("objective", "changed", "named"),
    [
        ("grpo", {"options": {"feedback_coef": 2.0}}, "does not read feedback_coef"),
        ("sdpo_token", {"options": {"sdpo": {"teacher": "live"}}}, "does not read sdpo.teacher"),
        ("grpo", {"mask": torch.ones(3, 2).bool()}, r"expected shape \(2, tokens\)"),
        ("grpo", {"log_probs": torch.zeros(2, 3)}, r"log_probs: expected shape \(2, 2\)"),
        ("grpo", {"rows": [0, 0]}, "different numbers from 0 to 1"),
        ("grpo", {"teacher_log_probs": torch.zeros(2, 2)}, "grpo does not read it"),
        ("sdpo_logits", {}, "divergence: sdpo_logits needs it"),
        ("gpro", {}, "Did you mean grpo"),
    ],
)
def test_what_does_not_fit_is_refused(objective: str, changed: dict[str, Any], named: str) -> None:
    pair = [ditto.Sequence("draft", "p", "a", 0.0), ditto.Sequence("draft", "p", "b", 1.0)]
    arguments = {"log_probs": torch.zeros(2, 2), "mask": torch.ones(2, 2).bool()} | changed
    with pytest.raises(SoulError, match=named):
        ditto.loss(objective, pair, **arguments)
