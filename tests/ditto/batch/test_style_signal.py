"""Style tokens in the distillation's signal, and the KL to the start: against sums by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import ditto.batch.queue
from ditto.batch.jagged import jagged
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.style_signal import StyleSignal, style_metrics
from tests.ditto.our_step import settings_of

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
