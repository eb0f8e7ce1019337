"""The model card of a checkpoint of supervised training: base, data, losses."""

from __future__ import annotations

import logging
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
    base, trainer = str(config.model.path), config.trainer
    rank, total = int(config.model.get("lora_rank") or 0), trainer.total_training_steps
    settings = [
        ("", "what"),
        ("base model", shown_model(base)),
        ("steps", f"{step} of {total}" if total else f"{step}, {trainer.total_epochs} epochs"),
        ("batch", f"{config.data.train_batch_size} sequences, learning rate {config.optim.lr}"),
        ("weights", f"LoRA, rank {rank}, alpha {config.model.lora_alpha}" if rank else "all weights trained"),
        ("seed", str(config.data.seed)),
    ]
    files = [("file", "passes per epoch", "sequences", "hash of its tokens")]
    files += [(Path(file.path).name, file.ratio, str(file.sequences), file.digest[:16]) for file in data.files]
    sections = {"Training": table(settings), "Data": table(files)}
    if experts := _experts(data):
        text = "The conversations are answers of these models:\n\n"
        sections["Experts"] = text + table([("rows", "expert"), *experts.items()])
    sections |= {"Results": _results(config, step), "Versions": versions()}
    method = f"{shown_model(base)}, trained with DITTO/SOUL on conversations (supervised) to simulate people."
    tags = ("sft", *(("distillation",) if experts else ()))
    return Card(str(trainer.experiment_name), step, base, method, tags, sections)


def _experts(data: TrainedData) -> dict[str, str]:
    """Rows -> the expert that answered them, where the data were distilled."""
    reports = dict.fromkeys(Path(file.path).parent / DISTILLED for file in data.files)
    entries = [
        entry
        for file in reports
        if file.is_file()
        for entry in read_object(file, SoulError, "Distil again.").get("experts", [])
    ]
    return {", ".join(entry["sets"]): shown_model(str(entry["expert"])) for entry in entries}


def _results(config: DictConfig, step: int) -> str:
    """The last training loss and the last scores up to a step."""
    last: dict[str, tuple[str, str]] = {}
    for number, line in sorted(RunFolder(Path(config.run.dir)).metrics().items()):
        shown = {key for key in line if key == "train/loss" or key.startswith("val/")}
        if number <= step:
            last |= {key: (str(number), f"{line[key]:.4f}") for key in shown}
    if not last:
        return "None are recorded."
    return table([("metric", "step", "value"), *((key, *values) for key, values in sorted(last.items()))])
