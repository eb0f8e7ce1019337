"""The data that a run trains on: recorded in each checkpoint, and compared when a run resumes.

    global_step_50/actor/data.json    {"hash": "8b2f...", "order": {"data.seed": "42", ...}, "files": [...], ...}

The number of a step determines which sequences it trains. With other files, ratios, seed or batch size, a resumed run
would repeat some sequences and never see others, and nothing would show it. Files are compared by the token ids made
from them: moving a file changes nothing, and a new chat template changes every file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError

from sft.corpus.order import SHUFFLE
from sft.corpus.sources import SftDataSettings
from sft.corpus.split import Corpus, CorpusFile
from soul.errors import SoulError, one_line

FILE = "data.json"
_ORDER = ("data.seed", "data.train_batch_size")
# Values that a checkpoint restores, or that its weights depend on.
_KEPT = (
    *("optim.optimizer", "optim.optimizer_impl", "optim.lr", "optim.weight_decay", "optim.betas"),
    *("model.lora_rank", "model.lora_alpha", "model.target_modules"),
)
# Fields of `SftDataSettings` that say where data is, or how it is made; all others change the sequences.
_PLACES = {"cache_dir", "dir", "train_files", "val_files", "bad_rows", "seed"}
_TOKENIZER = "the tokenizer with its chat template"


class ChangedRun(SoulError):
    """A run would resume with other data, or with other settings of its optimizer or adapter."""


@dataclass(frozen=True)
class TrainedData:
    """The data and settings behind the sequences of every step, and the settings that a resumed run cannot change.

    Attributes:
        order: key of the config -> value, as JSON; with `files` it determines the sequences.
        files: the training files in their order.
        made_by: the same for settings that determine the tokens of the files; they explain why a file has changed.
        kept: the same for what the checkpoint's state belongs to.
        base: the model that training started from, if the checkpoint holds the adapter alone.
    """

    order: dict[str, str]
    files: list[CorpusFile]
    made_by: dict[str, str]
    kept: dict[str, str]
    base: str | None

    @classmethod
    def from_run(cls, config: DictConfig, settings: SftDataSettings, corpus: Corpus) -> TrainedData:
        """The data of a run with this config and training split."""
        made_by = {f"data.{name}": value for name, value in settings.model_dump(mode="json", exclude=_PLACES).items()}
        order, kept = ({key: OmegaConf.select(config, key) for key in keys} for keys in (_ORDER, _KEPT))
        order["shuffle"] = SHUFFLE
        made_by[_TOKENIZER] = corpus.tokenizer
        base = str(config.model.path) if config.checkpoint.save_lora_only else None
        return cls(_texts(order), list(corpus.files), _texts(made_by), _texts(kept), base)

    @property
    def hash(self) -> str:
        """Equal hashes mean equal sequences at every step."""
        files = [(file.ratio, file.digest) for file in self.files if file.sequences]
        return hashlib.sha256(json.dumps([self.order, files], sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write the record into the folder of a checkpoint."""
        content = json.dumps({"hash": self.hash, **asdict(self)}, indent=1)
        (folder / "actor" / FILE).write_text(content, encoding="utf-8")


_RECORD = TypeAdapter(TrainedData)


def check_unchanged(folder: Path, now: TrainedData, path: str, accepted: bool) -> list[str]:
    """Compare what a checkpoint was trained on with what the run (`path`: its model.path) would train on.

    Returns:
        Lines for the plan: differences that `accepted` (`trainer.resume_changed`) makes no error.
    """
    file = folder / "actor" / FILE
    if not file.is_file():  # an older version wrote the checkpoint
        return []
    try:
        before = _RECORD.validate_json(file.read_bytes())
    except ValidationError as error:
        raise ChangedRun(f"{file} cannot be read ({one_line(error, 200)}). Restore it from a copy.") from error
    adapter = f"model.path={before.base} model.lora_adapter_path={folder}/lora_adapter"
    start = adapter if before.base else f"model.path={folder}"
    new_run = f"start a new run from it: {start} with another EXPERIMENT_NAME (run.dir)"
    kept = _changes(before.kept, now.kept)
    if before.base not in (None, path):
        kept.append(f"model.path was {before.base} and is {path}")
    if kept:
        raise ChangedRun(
            f"{folder} was written with other settings: {'; '.join(kept)}. Its optimizer and weights belong to those, "
            f"so a resumed run cannot change them. Undo the change, or {new_run}."
        )
    if before.hash == now.hash:
        return []
    changes = "; ".join([*_changes(before.order, now.order), *_changed_files(before, now)])
    if accepted:
        return [f"resumes on CHANGED data (trainer.resume_changed=true): {changes}"]
    raise ChangedRun(
        f"{folder} was trained on other data: {changes}. A resumed run would repeat some sequences and never "
        "see others. Undo the change, or go on with the new data with trainer.resume_changed=true, or "
        f"{new_run}."
    )


def _changed_files(before: TrainedData, now: TrainedData) -> list[str]:
    """The differences between two lists of files, and the settings that explain other sequences."""
    old, new = ([file for file in data.files if file.sequences] for data in (before, now))
    changes = []
    for file in new:
        same = next((each for each in old if each.digest == file.digest), None)
        if same is None:
            changes.append(f"{file.path} is new or has other sequences")
            continue
        old.remove(same)
        if same.ratio != file.ratio:
            changes.append(f"the ratio of {file.path} was {same.ratio} and is {file.ratio}")
    changes += [f"{file.path} is missing or has other sequences now" for file in old]
    if len(changes) > len(old) > 0:  # files with other sequences
        changes += _changes(before.made_by, now.made_by)
    return changes or ["the files come in another order"]


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return [
        f"{key} has changed"
        if key == _TOKENIZER
        else f"{key} was {before.get(key, 'unset')} and is {now.get(key, 'unset')}"
        for key in keys
    ]


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {
        key: json.dumps(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value, sort_keys=True)
        for key, value in values.items()
    }
