"""Style tokens in the distillation's signal, and the KL to the start: against sums by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import ditto.batch.queue
from ditto.batch.jagged import jagged
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.style_signal import StyleSignal, of_distillation, style_metrics
from tests.ditto import our_step
from tests.ditto.objectives.test_sdpo import drafts, feedback_prompts, vocabulary
from tests.ditto.our_step import ours, settings_of, step_data
from tests.ditto.tiny_step import mini_batches, old_log_probs, perturbed, tiny_model

PIECES = ["<eos>", "Ġlet", "ter", "Ġme", "Ġbox", ",", "how", "ever", "Ġ", "Ċ", "Ġwait", "�"]


class Tokenizer:
    """Byte-level pieces, written as GPT-2's vocabulary writes them."""

    all_special_ids = (0,)

    def convert_ids_to_tokens(self, token: int) -> str:
        return PIECES[token]

    def decode(self, ids: list[int]) -> str:
        return "".join(PIECES[token] for token in ids).replace("Ġ", " ").replace("Ċ", "\n")


def ids_of(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("pieces", "style"),
    [
        (["how", "ever", ",", "Ġlet", "Ġme"], [1, 1, 1, 1, 1]),
        (["Ġlet", "ter", "Ġbox"], [0, 0, 0]),  # a piece of a content word
        (["Ġwait", "Ġ", "Ċ", "Ġbox"], [1, 0, 0, 0]),  # white space is neither
        (["Ġlet", "<eos>", "ter"], [1, 0, 0]),  # a special token ends a word
        (["�", "Ġme"], [0, 1]),
    ],
)
def test_a_word_of_several_tokens_is_judged_as_a_whole(pieces: list[str], style: list[int]) -> None:
    assert [int(flag) for flag in StyleSignal(Tokenizer()).is_style(ids_of(*pieces))] == style


def test_the_share_of_style_in_the_signal_of_refined_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refined answers, one with advantage 0; their drafts carry no signal."""
    texts = [ids_of("Ġbox", "Ġme"), ids_of("Ġlet", "Ġbox", ","), ids_of("Ġwait")]
    records = [
        SequenceRecord("draft", "p", "p_0", True, tokens=2, draft_reward=0.0, refined_reward=1.0),
        SequenceRecord("refined_base", "p", "p_0", True, tokens=2, draft_reward=0.0, refined_reward=1.0),
        SequenceRecord("refined_base", "q", "q_0", True, tokens=1, draft_reward=0.5, refined_reward=0.5),
    ]
    step = StepBatch(records, [])
    step.plan([0, 0, 0], settings_of("ditto"), "token-mean", 1.0)
    mask = jagged([torch.tensor(row) for row in ([1, 1], [1, 1, 0], [1])])
    actor = jagged([torch.tensor(row) for row in ([-1.0, -1.0], [-3.0, -2.0, -9.0], [-1.0])])
    rollout = jagged([torch.tensor(row) for row in ([-5.0, -1.0], [-1.0, -1.5, -1.0], [-9.0])])
    responses = {f"k{i}": torch.tensor(ids) for i, ids in enumerate(texts)}
    queue = SimpleNamespace(kv_batch_get=lambda keys, **_: {"responses": jagged([responses[key] for key in keys])})
    monkeypatch.setattr(ditto.batch.queue, "tq", queue)

    def select(keys: list[str]) -> Any:
        return SimpleNamespace(keys=keys, partition_id="train", select_keys=select)

    batch = select(list(responses))
    step.columns = Columns(mask, actor, rollout)
    StyleSignal(Tokenizer()).mark(batch, step)
    numbers = style_metrics(step)
    # "let" moves by 2, "box" by 0.5; the comma was not sampled
    assert numbers == pytest.approx(
        {"ditto/style_tokens": 0.5, "ditto/style_share": 2.0 / 2.5, "ditto/style_ratio": 1.6}
    )


@pytest.mark.parametrize("name", ["sdpo_token", "sdpo_logits"])
def test_the_share_of_style_in_the_signal_of_a_distillation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens with an even id are style here; the loss sums over micro-batches as metrics do."""
    rows, prompts = drafts(), feedback_prompts(drafts())
    old = old_log_probs(tiny_model(), rows, perturbed)
    settings = settings_of(name, sdpo={"teacher": "live", "top_k": None, "alpha": 1.0})
    reported: list[dict[str, Any]] = []
    loss_function = our_step.objective_loss

    def recording(*args: Any, **kwargs: Any) -> Any:
        loss, metrics = loss_function(*args, **kwargs)
        reported.append(metrics)
        return loss, metrics

    monkeypatch.setattr(our_step, "objective_loss", recording)
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, teacher_prompts=prompts)
    ours(tiny_model(head=True), step, data, "token-mean", settings, ranks=1, splits=2, update=0)
    sums = {
        key: sum(float(metrics[f"actor/part/distill/{key}"].aggregate()) for metrics in reported)
        for key in ("signal", "style_signal")
    }
    model, signal, tokens = tiny_model(), {True: 0.0, False: 0.0}, 0
    for i in mini_batches(rows)[0]:
        row = rows[i]
        if row.kind != "draft" or not prompts[i]:
            continue
        with torch.no_grad():
            new = vocabulary(model, row.prompt_ids, row.response_ids)
            taught = vocabulary(model, prompts[i], row.response_ids)
        for t, (y, mask) in enumerate(zip(row.response_ids, row.mask, strict=True)):
            if mask:
                at_token = (new[t, y] - taught[t, y]).abs()
                distance = at_token if name == "sdpo_token" else (new[t].exp() * (new[t] - taught[t])).sum()
                signal[y % 2 == 0] += min(math.exp(new[t, y].item() - old[i][t]), 2.0) * distance.item()
                tokens += 1
    assert sums["signal"] == pytest.approx((signal[True] + signal[False]) / tokens, rel=1e-6)
    assert sums["style_signal"] == pytest.approx(signal[True] / tokens, rel=1e-6)
    metrics = {f"actor/part/distill/{key}": value for key, value in sums.items()} | {"ditto/style_tokens": 0.5}
    share = signal[True] / (signal[True] + signal[False])
    assert of_distillation(metrics, "distill") == pytest.approx(
        {"ditto/style_share": share, "ditto/style_ratio": 2 * share}
    )


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
    assert step.kl_to_start() == {}  # no reference policy
    step.reference = column(start)
    numbers = step.kl_to_start()
    exact = (policy * (policy / start).log()).sum().item()
    assert numbers == pytest.approx({"ditto/kl_start": exact, "ditto/log_ratio_start": exact})
    step.columns = Columns(mask, column(start), column(start))
    assert step.kl_to_start() == {"ditto/kl_start": 0.0, "ditto/log_ratio_start": 0.0}
    step.records = records[1:2] * 3
    assert step.kl_to_start() == {}
