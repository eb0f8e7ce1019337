"""Supervised training that cannot fit ends before it starts; the override that it is told fits. On a CPU, what a config
leaves open follows from the model and the free memory."""

import re
from pathlib import Path

import pytest

from ditto.memory import cpu
from ditto.memory.estimate import GIB
from ditto.settings import BadConfig
from sft.config_checks import check_config
from sft.launch import config_of
from sft.preflight import check_memory
from tests.ditto.memory.qwen3 import saved, text

LONGEST = 24576


def test_sft_is_planned(tmp_path: Path) -> None:
    words = ["platform=gpu", f"model.path={saved(text('8B'), tmp_path)}", "data.train_files=a.parquet"]
    shown = "\n".join(check_memory(config_of([*words, "memory.gpu_gib=79.2"]), LONGEST))
    assert "update (49,152 tokens)" in shown and "8 GPUs of 79.2 GiB" in shown and "7.6" in shown
    full_logits = ["memory.gpu_gib=79.2", "model.use_fused_kernels=false", "data.max_token_len_per_gpu=98304"]
    for small in (["memory.gpu_gib=39.4"], full_logits):
        with pytest.raises(BadConfig, match="does not fit") as raised:
            check_memory(config_of([*words, *small]), LONGEST)
        advice = re.search(r"This fits: (.*?)\. If your GPUs", str(raised.value))
        assert advice, raised.value
        check_memory(config_of([*words, *small, *advice[1].split()]), LONGEST)


def fitted(
    monkeypatch: pytest.MonkeyPatch, model: Path, free_gib: float, longest: int, *words: str
) -> tuple[str, int, bool]:
    """The plan on a CPU with this free memory, the tokens of a micro-batch, and whether it checkpoints."""
    monkeypatch.setattr(cpu, "free_memory", lambda: int(free_gib * GIB))
    lengths = [f"data.max_prompt_length={longest - 100}", "data.max_response_length=100", "data.train_batch_size=512"]
    config = config_of(["platform=cpu", f"model.path={model}", "data.train_files=a.parquet", *lengths, *words])
    check_config(config)
    return (
        "\n".join(check_memory(config, longest)),
        config.data.max_token_len_per_gpu,
        config.model.enable_gradient_checkpointing,
    )


def test_micro_batch_and_checkpointing_follow_from_the_free_memory_of_a_cpu(
    real_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, tokens, checkpointing = fitted(monkeypatch, real_model, 22, 512)
    assert "0.13 B weights, all trained, at most" in line and "of 22.0 free" in line
    assert f"micro-batches of {tokens:,} tokens without gradient checkpointing" in line
    assert 512 <= tokens < 65536 and not checkpointing
    _, tokens, checkpointing = fitted(monkeypatch, real_model, 12, 8192)
    assert tokens >= 8192 and checkpointing
    adapted, _, _ = fitted(monkeypatch, real_model, 22, 512, "model.lora_rank=8")
    assert "of an adapter (LoRA) trained" in adapted
    given = ["data.max_token_len_per_gpu=600", "model.enable_gradient_checkpointing=true"]
    assert fitted(monkeypatch, real_model, 22, 512, *given)[1:] == (600, True)


@pytest.mark.parametrize(("checkpointing", "measured"), [(False, 18.4), (True, 6.8)])
def test_the_plan_of_a_cpu_covers_what_was_measured(
    real_model: Path, monkeypatch: pytest.MonkeyPatch, checkpointing: bool, measured: float
) -> None:
    """GiB at most of both processes (proportional set size), in two steps of one sequence of 8,190 tokens."""
    given = [f"model.enable_gradient_checkpointing={checkpointing}", "data.train_batch_size=1"]
    line, _, _ = fitted(monkeypatch, real_model, 40, 8190, *given)
    planned = float(re.findall(r"at most ([\d.]+) GiB", line)[0])
    assert measured <= planned <= 1.15 * measured


def test_what_does_not_fit_into_the_memory_of_a_cpu_is_refused(
    real_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadConfig, match=r"of which a run may use 90%.*less than 8,192 tokens.*lora_rank=32"):
        fitted(monkeypatch, real_model, 4, 8192)
