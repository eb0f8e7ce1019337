"""Supervised training that cannot fit ends before it starts, and the override that it is told fits."""

import re
from pathlib import Path

import pytest

from ditto.settings import BadConfig
from sft.launch import config_of
from sft.memory_plan import check_memory
from tests.ditto.memory.qwen3 import saved, text

LONGEST = 24576


def test_sft_is_planned(tmp_path: Path) -> None:
    words = ["platform=gpu", f"model.path={saved(text('8B'), tmp_path)}", "data.train_files=a.parquet"]
    (line,) = check_memory(config_of([*words, "memory.gpu_gib=79.2"]), LONGEST)
    assert "49,152 tokens" in line and "8 GPUs of 79.2 GiB" in line and "optimizer 7.6" in line
    full_logits = ["memory.gpu_gib=79.2", "model.use_fused_kernels=false", "data.max_token_len_per_gpu=98304"]
    for small in (["memory.gpu_gib=39.4"], full_logits):
        with pytest.raises(BadConfig, match="does not fit") as raised:
            check_memory(config_of([*words, *small]), LONGEST)
        advice = re.search(r"This fits: (.*?)\. A GPU of", str(raised.value))
        assert advice, raised.value
        check_memory(config_of([*words, *small, *advice[1].split()]), LONGEST)
