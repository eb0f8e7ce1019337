"""The card of a checkpoint: what it says, what it must not say, and that editing it damages nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.run import manifest
from ditto.run.checkpoint import partial_dir, publish
from ditto.run.model_card import write_rl_card
from ditto.run.run_folder import RunFolder
from soul.judge.call.usage import Usage
from soul.judge.ledger import Ledger
from tests.soul.figures.made_up_runs import training

KEY = "sk-sentinel-0815"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a training run of sotopia with a validation."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    folder = training(tmp_path / "outputs" / "run", 1, steps=6)
    RunFolder(folder).log_metrics(5, {"val-core/sotopia/reward/mean@1": 0.625})
    RunFolder(folder).log_metrics(6, {"ditto/gap": 0.125})
    ledger = Ledger()
    ledger.add("sotopia", {"judge": Usage(), "environment": Usage()})
    ledger.save(folder / "usage.json")
    return folder


def config(run: Path, *words: str) -> DictConfig:
    files = [
        f"data.train_files=[{run.parent}/train.parquet]",
        f"data.val_files=[{run.parent}/val.parquet]",
    ]
    base = [f"run.dir={run}", "actor_rollout_ref.model.path=Qwen/Qwen3-8B", "trainer.experiment_name=my-run"]
    models = ["judge.model=a-judge", "environment.model=a-partner", "actor_rollout_ref.model.lora_rank=8"]
    return load_config(["platform=cpu", *files, *base, *models, *words])


def written(run: Path, *words: str) -> Path:
    """A published checkpoint of step 6 with its card."""
    folder = partial_dir(run) / "global_step_6"
    (folder / "lora_adapter").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    write_rl_card(folder, config(run, *words), 6)
    return publish(run, 6)


def test_the_card_says_what_the_model_is(run: Path) -> None:
    cards = [{"split": "train", "name": "train.parquet", "rows": 1024, "tasks": {"sotopia": 1024}, "sha256": "ab" * 32}]
    (run / "run.json").write_text(json.dumps({"schema_version": 1, "data_cards": cards}))
    folder = written(run, "algorithm.objective=rltf_sd")
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "Qwen/Qwen3-8B" and card.data.library_name == "transformers"
    assert card.data.license is None and "rltf_sd" in card.data.tags
    for part in (
        "# my-run, step 6",
        *("arxiv.org/abs/2602.02482", "L         = L_grpo(drafts) + L_distill"),  # source and formula
        *("| train | train.parquet | 1024 | sotopia | abababababababab |", "LoRA, rank 8"),
        *("| val-core/sotopia/reward/mean@1 | 5 | 0.6250 |", "| ditto/gap | 6 | 0.1250 |"),
        *("| judge | `a-judge` |", "| environment | `a-partner` |", "`sotopia/judge.v"),
        *("verl 0.9.1", "## Licence"),
    ):
        assert part in card.text, (part, card.text)
    assert "feedback | `" not in card.text, "a role that was never called"
    assert ModelCard.load(folder / "lora_adapter" / "README.md").data.library_name == "peft"


def test_the_card_names_no_place_and_no_key_of_this_machine(run: Path) -> None:
    base = run.parent / "earlier" / "global_step_40"
    base.mkdir(parents=True)
    cards = [{"split": "train", "name": f"{run.parent}/rows-{KEY}.parquet", "tasks": {}}]
    (run / "run.json").write_text(json.dumps({"schema_version": 1, "data_cards": cards}))
    folder = written(run, f"actor_rollout_ref.model.path={base}")
    text = (folder / "README.md").read_text()
    assert "a local checkpoint, `earlier/global_step_40`" in text and "base_model" not in text
    assert str(run.parent) not in text and "rows-***" in text and KEY not in text


def test_an_edited_card_damages_no_checkpoint(run: Path) -> None:
    folder = written(run)
    (folder / "README.md").write_text("mine")
    manifest.check(folder)
    (folder / "model.safetensors").write_bytes(b"weight5")
    with pytest.raises(manifest.DamagedCheckpoint, match="model.safetensors"):
        manifest.check(folder)


def test_a_card_that_fails_costs_no_checkpoint(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    (run / "metrics.jsonl").write_text("{")
    folder = written(run)
    manifest.check(folder)
    assert "global_step_6 has no model card" in caplog.text and "metrics.jsonl" in caplog.text
