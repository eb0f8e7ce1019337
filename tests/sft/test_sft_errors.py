"""A dry run shows what becomes of the rows.

The table of mistakes is in tests/mistakes/test_training_mistakes.py.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from ditto.settings import BadConfig
from recipe.demo import tiny_model
from sft.launch import config_of, main
from sft.preflight import check
from tests.sft.encode.templates import STRIPS_THINKING

TALK = [{"role": "user", "content": "Where is the pear?"}, {"role": "assistant", "content": "In the box."}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.build(tmp_path_factory.mktemp("model"), ["Where is the pear? In the box."] * 20)


def write(file: Path, rows: list[dict[str, object]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), file)


def shard(folder: Path, *messages: list[dict[str, str]], **columns: object) -> None:
    write(folder / "train_shard_0.parquet", [{"messages": talk, **columns} for talk in messages or [TALK]])


def run(tmp_path: Path, model: Path, *words: str) -> int:
    usual = ["platform=cpu", f"data.dir={tmp_path}", f"model.path={model}", f"run.dir={tmp_path}/run", "+dry_run=true"]
    small = ["data.max_prompt_length=200", "data.max_response_length=50", "data.train_batch_size=2"]
    return main([*usual, *small, *words])


def test_a_dry_run_shows_what_becomes_of_the_rows(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard(tmp_path, TALK, TALK, data_source="wildchat_1m")
    write(tmp_path / "val_shard_0.parquet", [{"messages": TALK, "data_source": "boxes"}] * 3)
    words = ["trainer.total_training_steps=3", "data.default_train_role=human"]
    assert run(tmp_path, model, *words) == 0
    plan = capsys.readouterr().out
    assert "3 steps of 2 rows: 3.00 epochs of 2 rows" in plan and "expansion 1.00" in plan
    assert "human (like wildchat): 2" in plan and "human (data.default_train_role): 3" in plan


def test_more_processes_than_gpus_are_refused_before_the_corpus_is_read(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    shard(tmp_path)
    config = config_of(["platform=gpu", f"data.dir={tmp_path}", f"model.path={model}", f"run.dir={tmp_path}/run"])
    shown = r"n_gpus_per_node=8: this machine shows 4 of them \(CUDA_VISIBLE_DEVICES=0,1,2,3\).* Set N_GPUS=4"
    with pytest.raises(BadConfig, match=shown):
        check(config, None)
    assert not (tmp_path / "sft_cache").exists()


def test_the_plan_says_what_a_template_costs(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A template that strips earlier thoughts, as Qwen3's: every answer of a row becomes a sequence of its own."""
    shard(tmp_path, TALK * 10, TALK * 10)
    (tmp_path / "strips.jinja").write_text(STRIPS_THINKING)
    words = ["data.default_train_role=assistant", "data.max_prompt_length=2000"]
    assert run(tmp_path, model, *words, f"model.chat_template={tmp_path}/strips.jinja") == 0
    plan = " ".join(capsys.readouterr().out.split())
    assert "steps of 2 rows" in plan and "epochs of 2 rows" in plan  # rows, not the 20 sequences
    assert float(plan.partition("expansion ")[2].partition(":")[0]) > 5
    assert "a row becomes several sequences" in plan
