"""The data that a run trains on: recorded in each checkpoint, and compared when a run resumes.

    global_step_50/actor/data.json    {"hash": "8b2f...", "order": {"data.seed": "42", ...}, "files": [...], ...}

The number of a step determines which sequences it trains. With other files, ratios, seed or batch size, a resumed run
would repeat some sequences and never see others, and nothing would show it. Files are compared by the token ids made
from them: moving a file changes nothing, and a new chat template changes every file.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError

from sft.corpus.settings import SftDataSettings
from sft.corpus.split import Corpus, CorpusFile
from soul.errors import SoulError, one_line

logger = logging.getLogger(__name__)
FILE = "data.json"
SHOWN = 6  # differences in a message, at most
_ORDER = ("data.seed", "data.train_batch_size")
# Values that a checkpoint restores, or that its weights depend on.
_KEPT = (
    *("optim.optimizer", "optim.optimizer_impl", "optim.lr", "optim.weight_decay", "optim.betas"),
    *("model.lora_rank", "model.lora_alpha", "model.target_modules"),
)
# Fields of `SftDataSettings` that say where data is, or how it is made; all others change the sequences.
_PLACES = {"cache_dir", "dir", "train_files", "val_files", "tokenizer_workers", "bad_rows", "seed"}
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
    """Compare what a checkpoint was trained on with what the run would train on.

    Args:
        folder: the checkpoint.
        path: `model.path` of the run.
        accepted: `trainer.resume_changed`; other data are then no error.

    Returns:
        Lines for the plan: differences that are accepted.

    Raises:
        ChangedRun: they differ; the message lists the differences.
    """
    file = folder / "actor" / FILE
    if not file.is_file():
        logger.warning("%s has no actor/%s (an older version wrote it): its data are not compared", folder, FILE)
        return []
    try:
        before = _RECORD.validate_json(file.read_bytes())
    except ValidationError as error:
        raise ChangedRun(f"{file} cannot be read ({one_line(error, 200)}). Restore it from a copy.") from error
    adapter = f"model.path={before.base} model.lora_adapter_path={folder}/lora_adapter"
    start = adapter if before.base else f"model.path={folder}"
    new_run = f"start a new run from it: {start} with another EXPERIMENT_NAME (run.dir)"
    kept = list(_changes(before.kept, now.kept))
    if before.base not in (None, path):
        kept.append(f"model.path was {before.base} and is {path}")
    if kept:
        raise ChangedRun(
            f"{folder} was written with other settings: {_listed(kept)}. Its optimizer and weights belong to those, so "
            f"a resumed run cannot change them. Undo the change, or {new_run}."
        )
    if before.hash == now.hash:
        return []
    changes = [*_changes(before.order, now.order), *_changed_files(before, now)]
    if accepted:
        return [f"resumes on CHANGED data (trainer.resume_changed=true): {_listed(changes)}"]
    raise ChangedRun(
        f"{folder} was trained on other data: {_listed(changes)}. A resumed run would repeat some sequences and never "
        "see others. Undo the change, or go on with the new data with trainer.resume_changed=true, or "
        f"{new_run}."
    )


def _changed_files(before: TrainedData, now: TrainedData) -> Iterator[str]:
    """The differences between two lists of files, and the settings that explain it."""
    earlier = [file for file in before.files if file.sequences]
    later = [file for file in now.files if file.sequences]
    pairs = _pairs(earlier, later)
    for old, new in pairs:
        if old.digest != new.digest:
            yield f"{new.path} has other sequences ({new.sequences:,}, before {old.sequences:,})"
        if old.ratio != new.ratio:
            yield f"the ratio of {new.path} was {old.ratio} and is {new.ratio}"
    yield from (f"{file.path} is new" for file in later if not any(file is new for _, new in pairs))
    yield from (f"{file.path} is missing" for file in earlier if not any(file is old for old, _ in pairs))
    if [old for old, _ in pairs] != [file for file in earlier if file in [old for old, _ in pairs]]:
        yield "the files come in another order"
    if any(old.digest != new.digest for old, new in pairs):
        yield from _changes(before.made_by, now.made_by)


def _pairs(earlier: list[CorpusFile], later: list[CorpusFile]) -> list[tuple[CorpusFile, CorpusFile]]:
    """Files of two lists that belong together, in the order of the second: by content, else by name."""
    free, pairs = list(earlier), {}
    for same in (lambda file: file.digest, lambda file: Path(file.path).name):
        for place, new in enumerate(later):
            old = next((file for file in free if place not in pairs and same(file) == same(new)), None)
            if old is not None:
                free.remove(old)
                pairs[place] = (old, new)
    return [pairs[place] for place in sorted(pairs)]


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for key in {**before, **now}:
        old, new = before.get(key, "unset"), now.get(key, "unset")
        if old != new:
            yield f"{key} has changed" if key == _TOKENIZER else f"{key} was {old} and is {new}"


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {
        key: json.dumps(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value, sort_keys=True)
        for key, value in values.items()
    }


def _listed(changes: list[str]) -> str:
    more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return "; ".join(changes[:SHOWN]) + more
