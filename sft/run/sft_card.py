"""The model card of a checkpoint of supervised training: what it was made from, its data, its losses."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from omegaconf import DictConfig

from ditto.run.model_card import Card, shown_model, table, versions
from ditto.run.run_folder import RunFolder
from sft.distill.report import FILE as DISTILLED
from sft.run.trained_data import TrainedData
from soul.errors import SoulError
from soul.files.json_object import read_object

logger = logging.getLogger(__name__)


def write_sft_card(folder: Path, config: DictConfig, data: TrainedData, step: int) -> None:
    """Write the card of a checkpoint. If that fails, a log line says why: a card never costs a checkpoint."""
    try:
        sft_card(config, data, step).write(folder)
    except Exception as error:  # noqa: BLE001 - see above
        logger.warning("%s has no model card: %s: %s", folder.name, type(error).__name__, error)


def sft_card(config: DictConfig, data: TrainedData, step: int) -> Card:
    """The card of a checkpoint, from the run's config, data and metrics."""
    base = str(config.model.path)
    metrics = {number: line for number, line in RunFolder(Path(config.run.dir)).metrics().items() if number <= step}
    experts = dict(_experts(data))
    method = f"{shown_model(base)}, trained with DITTO/SOUL on conversations (supervised) to simulate people."
    sections = {"Training": table([("", "what"), *_settings(config, step)]), "Data": _data(data)}
    if experts:
        rows = [(name, expert) for name, expert in experts.items()]
        sections["Experts"] = "The conversations are answers of these models:\n\n" + table([("rows", "expert"), *rows])
    sections |= {"Results": _results(metrics), "Versions": versions()}
    tags = ("sft", *(("distillation",) if experts else ()))
    return Card(str(config.trainer.experiment_name), step, base, method, tags, sections)


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


def _results(metrics: Mapping[int, Mapping[str, float]]) -> str:
    last = {key: (step, value) for step, line in sorted(metrics.items()) for key, value in line.items()}
    shown = [key for key in sorted(last) if key == "train/loss" or key.startswith("val/")]
    if not shown:
        return "None are recorded."
    return table([("metric", "step", "value"), *((key, str(last[key][0]), f"{last[key][1]:.4f}") for key in shown)])
