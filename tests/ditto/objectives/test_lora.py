"""Every objective with LoRA: loss and every gradient of the adapter equal the formula's, to 1e-6 relative.

The formula is differentiated by the adapter's two factors. SDPO's teacher is the adapter from before the update.
"""

from __future__ import annotations

import pytest

from ditto.objectives import OBJECTIVES
from tests.ditto.objectives import test_formulas, test_on_policy_distillation, test_sdpo
from tests.ditto.our_step import engine_of, ours, settings_of, step_data
from tests.ditto.tiny_objectives import FORMULAS, MODE, OPTIONS, Mini, new_model
from tests.ditto.tiny_step import mini_batches, old_log_probs, perturbed

TOLERANCE = 1e-6


@pytest.mark.parametrize("name", OBJECTIVES)
def test_update_equals_the_formula(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, splits = 2, 3
    rows = test_formulas.rows_of(OBJECTIVES[name].kinds)
    model, theirs = new_model("random", head=True), new_model("random")
    old = old_log_probs(theirs, rows, perturbed)
    teacher = OBJECTIVES[name].teacher
    taught = test_sdpo.feedback_prompts(rows) if teacher == "feedback" else [()] * len(rows)
    tasks = [test_on_policy_distillation.TASK_OF[row.prompt] for row in rows]
    settings = settings_of(name, **OPTIONS.get(name, {}))
    step, data = step_data(rows, old, settings, MODE, ranks, monkeypatch, teacher_prompts=taught, tasks=tasks)
    engine = engine_of(model)
    if teacher == "experts":
        engine.experts = [engine_of(expert) for expert in test_on_policy_distillation.experts(head=True)]
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(
            model, step, data, MODE, settings, ranks=ranks, splits=splits, update=update, engine=engine
        )
        theirs.zero_grad()
        expected = FORMULAS[name](
            theirs, theirs, Mini(*([values[i] for i in members] for values in (rows, old, taught)))
        )
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=TOLERANCE, abs=1e-9)
        adapter = {key: p.grad for key, p in theirs.named_parameters() if p.requires_grad}
        assert adapter.keys() == gradients.keys() and all("lora_" in key for key in adapter)
        for key, gradient in adapter.items():
            assert gradient is not None
            assert (gradients[key] - gradient).norm() <= TOLERANCE * gradient.norm(), key
