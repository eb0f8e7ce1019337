"""The model card of a checkpoint of supervised training: what it was made from, its data, its losses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig

from ditto.run.model_card import last_values, shown_model, table, write_card
from ditto.run.run_folder import RunFolder
from ditto.run.run_json import versions
from sft.distill.report import FILE as DISTILLED
from sft.run.trained_data import TrainedData
from soul.errors import SoulError
from soul.files.json_object import read_object


def write_sft_card(folder: Path, config: DictConfig, data: TrainedData, step: int) -> None:
    """Write the card of a checkpoint. If that fails, a log line says why: a card never costs a checkpoint."""
    distilled = any((Path(file.path).parent / DISTILLED).is_file() for file in data.files)
    title, base = f"{config.trainer.experiment_name}, step {step}", str(config.model.path)
    how = "trained with DITTO/SOUL on conversations (supervised) to simulate people"
    tags = ("sft", *(("distillation",) if distilled else ()))
    write_card(folder, title, base, how, tags, lambda: _sections(config, data, step))


def _sections(config: DictConfig, data: TrainedData, step: int) -> dict[str, str]:
    metrics = {number: line for number, line in RunFolder(Path(config.run.dir)).metrics().items() if number <= step}
    sections = {"Training": table([("", "what"), *_settings(config, step)]), "Data": _data(data)}
    if experts := list(_experts(data)):
        rows = table([("rows", "expert"), *experts])
        sections["Experts"] = f"The conversations are answers of these models:\n\n{rows}"
    results = last_values(metrics, lambda key: key == "train/loss" or key.startswith("val/"))
    return sections | {"Results": results, "Versions": ", ".join(f"{name} {number}" for name, number in versions())}


def _settings(config: DictConfig, step: int) -> Iterator[tuple[str, str]]:
    yield "base model", shown_model(str(config.model.path))
    total, epochs = config.trainer.total_training_steps, config.trainer.total_epochs
    yield "steps", f"{step} of {total}" if total else f"{step}, {epochs} epochs"
    yield "batch", f"{config.data.train_batch_size} sequences, learning rate {config.optim.lr}"
    rank = int(config.model.get("lora_rank") or 0)
    yield "weights", f"LoRA, rank {rank}, alpha {config.model.lora_alpha}" if rank else "all weights trained"
    yield "seed", str(config.data.seed)


def _data(data: TrainedData) -> str:
    lines = [("file", "passes per epoch", "sequences", "hash of its tokens")]
    lines += [(Path(file.path).name, file.ratio, str(file.sequences), file.digest[:16]) for file in data.files]
    return table(lines)


def _experts(data: TrainedData) -> Iterator[tuple[str, str]]:
    """Rows -> the expert that answered them, where the data were distilled."""
    for file in dict.fromkeys(Path(each.path).parent / DISTILLED for each in data.files):
        if file.is_file():
            for entry in read_object(file, SoulError, "Distil again.").get("experts", []):
                yield ", ".join(entry["sets"]), shown_model(str(entry["expert"]))
