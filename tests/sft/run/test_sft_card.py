"""The card of a supervised checkpoint: its base, data, experts and losses, and no place of the machine."""

from __future__ import annotations

import json
from pathlib import Path

from huggingface_hub import ModelCard
from omegaconf import OmegaConf

from ditto.run.run_folder import RunFolder
from sft.corpus.split import CorpusFile
from sft.run.checkpoints import write_sft_card
from sft.run.trained_data import TrainedData


def test_the_card_of_a_distilled_student(tmp_path: Path) -> None:
    run, data = tmp_path / "student", tmp_path / "data"
    data.mkdir()
    expert = tmp_path / "outputs" / "hitom" / "global_step_50"
    expert.mkdir(parents=True)
    experts = [{"expert": str(expert), "sets": {"hitom": "rows.parquet"}, "policy": {}}]
    (data / "distill.json").write_text(json.dumps({"experts": experts}))
    for step, numbers in (
        (10, {"train/loss": 2.0, "val/loss": 1.5}),
        (20, {"train/loss": 1.25}),
        (30, {"train/loss": 0}),
    ):
        RunFolder(run).log_metrics(step, numbers)
    config = OmegaConf.create(
        {
            "model": {"path": "Qwen/Qwen3-8B"},
            "run": {"dir": str(run)},
            "trainer": {"experiment_name": "student", "total_training_steps": None, "total_epochs": 3},
            "data": {"train_batch_size": 64, "seed": 42},
            "optim": {"lr": 1e-5},
        }
    )
    file = CorpusFile(str(data / "train.parquet"), "1", 320, "0123456789abcdef0000")
    folder = run / "global_step_20"
    folder.mkdir()
    write_sft_card(folder, config, TrainedData({}, [file], {}, {}, None), 20)
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "Qwen/Qwen3-8B" and {"sft", "distillation"} <= set(card.data.tags)
    for part in (
        *("# student, step 20", "| steps | 20, 3 epochs |", "| train.parquet | 1 | 320 | 0123456789abcdef |"),
        "| hitom | a local checkpoint, `hitom/global_step_50` |",
        *("| train/loss | 20 | 1.2500 |", "| val/loss | 10 | 1.5000 |"),
    ):
        assert part in card.text, (part, card.text)
    assert str(tmp_path) not in (folder / "README.md").read_text()
