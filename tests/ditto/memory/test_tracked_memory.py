"""The plan covers torch's peak: its FSDP2 memory tracker runs transformers' model under fake tensors."""

from typing import Any

import pytest

from ditto.memory.estimate import CHUNK_LOGITS, TrainingSetup, largest
from ditto.memory.model_shape import shape_of
from ditto.model.chunked_head import LOGITS_PER_CHUNK
from tests.ditto.memory import tracked
from tests.ditto.memory.qwen3 import text
from tests.ditto.memory.tracked import RANK, Tracked


def both(config: Any, tokens: int, lora: bool, **changed: Any) -> tuple[int, int]:
    """Tracked bytes and planned bytes."""
    run = Tracked(config, tokens, lora, **changed)
    training = TrainingSetup(
        shape_of(config, "Qwen3"),
        devices=run.devices,
        lora_rank=RANK if lora else 0,
        checkpointing=run.checkpointing,
        keep_gathered_gradients=run.micro_batches > 1,
        full_logits=run.full_logits,
    )
    moments = training.forward(tokens, optimizer_here=False) if run.forward_only else training.update(tokens)
    return tracked.peak_bytes(run), largest(moments).total


def agree(config: Any, tokens: int, lora: bool, **changed: Any) -> bool:
    """True if the plan is at most 2 % below what was tracked (its reserve is 1.5 GiB), and not far above."""
    measured, planned = both(config, tokens, lora, **changed)
    return 0.98 * measured <= planned <= 1.2 * measured


@pytest.mark.parametrize("size, lora", [("0.6B", False), ("8B", True)])
def test_an_update_of_two_layers(size: str, lora: bool) -> None:
    """Real widths and two layers: the layer's own activations, the head and the static parts all count."""
    assert agree(text(size, num_hidden_layers=2), 16384, lora)


def test_the_plan_knows_the_heads_chunks() -> None:
    assert CHUNK_LOGITS == LOGITS_PER_CHUNK


@pytest.mark.stress
def test_what_a_token_costs() -> None:
    """Static parts drop out of the difference: activations alone agree too."""
    config = text("8B", num_hidden_layers=2)
    (few, planned_few), (many, planned_many) = (both(config, tokens, True) for tokens in (16384, 20480))
    assert planned_many - planned_few == pytest.approx(many - few, rel=0.03)


@pytest.mark.stress
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
@pytest.mark.parametrize("size", ["0.6B", "8B"])
def test_an_update_of_all_layers(size: str, lora: bool) -> None:
    assert agree(text(size), 16384, lora)


@pytest.mark.stress
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
def test_full_logits(lora: bool) -> None:
    assert agree(text("0.6B", num_hidden_layers=2), 1024, lora, full_logits=True)


VARIANTS = {
    "one device": {"devices": 1},
    "no checkpointing": {"checkpointing": False},
    "log-probs": {"forward_only": True},
    "gradients exchanged last": {"micro_batches": 3},
}


@pytest.mark.stress
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
def test_other_ways_to_train(lora: bool, variant: str) -> None:
    assert agree(text("8B", num_hidden_layers=4), 16384, lora, **VARIANTS[variant])
