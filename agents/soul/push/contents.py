"""The files that are uploaded: model, tokenizer, adapter and card of a checkpoint; training files with a data card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from soul.evaluate.run.checkpoint import find_weight_problem, latest_checkpoint
from soul.files.json_object import read_object
from soul.push.dataset_card import dataset_card
from soul.push.upload import CARD, NotPushable, Upload
from soul.rows import data_card
from soul.rows.data_card import DataCard

ADAPTER = "lora_adapter"
# What a run needs to resume, and nobody else needs: optimizer, shards, the data's position, the list of files.
_STATE = ("actor", "data.pt", "manifest.json", "transfer_queue")


def checkpoint_upload(path: Path) -> Upload:
    """The upload of a checkpoint, a model folder, an adapter, or the latest checkpoint of a run.

    Raises:
        NotPushable: it has no whole weights, or a file looks like a key.
        BadCheckpoint: the run's latest checkpoint is missing.
    """
    folder = latest_checkpoint(path)
    _require_weights(folder)
    entries = sorted(entry.name for entry in folder.iterdir())
    left_out = tuple(name for name in entries if name in _STATE or name.startswith("."))
    files = tuple(
        file.relative_to(folder).as_posix()
        for name in entries
        if name not in left_out
        for file in ([folder / name] if (folder / name).is_file() else sorted((folder / name).rglob("*")))
        if file.is_file()
    )
    upload = Upload("model", folder, files, left_out, tuple(_remarks(folder, files)))
    upload.check_keys()
    return upload


def _require_weights(folder: Path) -> None:
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        hint = f" Name {folder / ADAPTER} to push its adapter." if (folder / ADAPTER).is_dir() else ""
        raise NotPushable(
            f"{folder} has neither config.json nor adapter_config.json, so it is not a model. Pass the path of a "
            f"global_step_N, of a run's folder, or of a model.{hint}"
        )
    if problem := find_weight_problem(folder):
        raise NotPushable(f"{folder}: {problem}")


def _remarks(folder: Path, files: tuple[str, ...]) -> Iterator[str]:
    if CARD not in files:
        yield f"There is no {CARD}: the page on the hub will be empty. Training writes one beside each checkpoint."
    elif "license:" not in (folder / CARD).read_text("utf-8", errors="replace").split("\n---", 1)[0]:
        yield f"{CARD} states no licence: add `license: ...` to its header."
    for name in files:
        if Path(name).name == "adapter_config.json":
            config = read_object(folder / name, NotPushable, "Export the adapter again.")
            base = str(config.get("base_model_name_or_path") or "")
            if base.startswith(("/", "~", ".")):
                yield f"{name} names a folder of this machine as its base model: write the base's hub id there."


TRAINING = "sim_rl_data"  # the folder below DATA_DIR that holds training files


def data_upload(path: Path, repo: str) -> Upload:
    """The upload of the training files in a folder: DATA_DIR, or the folder of the files itself.

    A file goes with its card; a file without one stays here, as nobody can tell where its rows come from. So do the
    evaluation files: a public copy ends in other people's training data.

    Raises:
        NotPushable: no file has a card, or something looks like a key.
        BadRow: a card cannot be read, or describes another file.
    """
    folder = path / TRAINING if (path / TRAINING).is_dir() else path
    cards = {file.name: card for file in sorted(folder.glob("*.parquet")) if (card := data_card.read(file)) is not None}
    if not cards:
        raise NotPushable(
            f"{folder} has no training file with a data card. `python -m data.train SOURCES --out DATA` writes both; "
            "name DATA or the folder of its files."
        )
    files = tuple(name for file in cards for name in (file, data_card.path_of(Path(file)).name))
    upload = Upload(
        kind="dataset",
        folder=folder,
        files=files,
        left_out=tuple(sorted(entry.name for entry in folder.iterdir() if entry.name not in files)),
        made={CARD: dataset_card(repo, cards).encode()},
        withheld=tuple(_withheld(cards)),
    )
    upload.check_keys()
    return upload


def _withheld(cards: Mapping[str, DataCard]) -> Iterator[str]:
    for name, card in cards.items():
        if not card.licences:
            yield f"{name}: its card states no licences, so build it again"
        for terms in card.licences:
            if terms.share != "yes":
                verdict = "must not be published" if terms.share == "no" else "it is unclear whether you may publish it"
                yield f"{name}: {terms.source} ({terms.licence}): {verdict}, because {terms.why}"
