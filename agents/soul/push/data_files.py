"""Which files of DATA_DIR are uploaded: training files with a data card, if their licences allow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from soul.push.dataset_card import dataset_card
from soul.push.upload import CARD, NotPushable, Upload
from soul.rows import data_card
from soul.rows.data_card import DataCard

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
