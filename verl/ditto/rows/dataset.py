"""The training and validation sets for verl's dataloader: validated task rows, mixed by task, whose prompts fit."""

import json
from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from torch.utils.data import Dataset

from ditto.rows.lengths import fitting_rows
from ditto.rows.mixture import MixtureSettings
from soul.rows.task_files import TaskRow, parse_row, read_rows


class SoulDataset(Dataset):
    """Rows of one or several task files, for verl's dataloader (`data.custom_cls`).

    Attributes:
        split: "train", or "val" for the set that is played without feedback; the trainer sets it.
        rows: the rows, after mixture and length check.
    """

    split = "train"

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any,
        config: DictConfig,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        files = _as_list(data_files)
        mixture = MixtureSettings.model_validate(OmegaConf.to_container(config.mixture, resolve=True))
        # verl builds both sets with the same call: only the files show which one this is, or, where both sets have the
        # same files, which list of the config they came in.
        train, val = _as_list(config.train_files), _as_list(config.val_files)
        trains = data_files is config.train_files if train == val else files == train
        if processor is not None and processor.chat_template:  # verl gives the run's template to the processor alone
            tokenizer.chat_template = processor.chat_template
        rows = read_rows(files)
        drawn = mixture.training_rows(rows, config.seed) if trains else mixture.validation_rows(rows)
        self.rows, _ = fitting_rows(config, drawn, tokenizer, max_samples)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = self.rows[item]
        return {
            "data_source": row.task.name,
            "raw_prompt": row.task.prompt(row.row),
            # One JSON string: as a struct, its fields would be merged over all tasks and filled with nulls.
            "row": json.dumps({"file": row.file, "number": row.number, "record": row.row.model_dump(mode="json")}),
            "index": row.row.index,
            "split": self.split,
            "reward_model": {"style": "soul"},  # verl's validation reads this field
            "dummy_tensor": torch.tensor([0], dtype=torch.uint8),  # verl needs at least one tensor per row
        }


def _as_list(files: str | Sequence[str]) -> list[str]:
    return list(files) if isinstance(files, list | tuple | ListConfig) else [str(files)]


def restore_row(data_source: str, packed: str) -> TaskRow:
    """The row of the JSON string that `SoulDataset` puts into the column "row"."""
    fields = json.loads(packed)
    return parse_row(data_source, fields["record"], fields["file"], fields["number"])
