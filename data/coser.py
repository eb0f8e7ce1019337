"""CoSER task files: scenes of books with characters, motivations and the book's own conversation.

    python -m data.coser convert test_set.json --out data/sim_eval_data/coser_val.parquet
    python -m data.coser convert final/*.json --out data/sim_rl_data/coser_rl_train.parquet

Source: github.com/Neph0s/CoSER, data/test/test_set.json (200 scenes) and data/final/*.json (one file a book);
huggingface.co/datasets/Neph0s/CoSER (MIT). The conversations come from novels, most of them in copyright.

A source is a list of scenes, or a book: `plots`, each with its conversations, and `character_datasets`. A book's plots
from `split_plot_index` on are left out because the test set's scenes were drawn from them. If a book does not name that
index, it is nine tenths of the plots, as in the source.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows
from data.reading import at, read_json, row_of
from data.rows import Record, numbered
from soul.tasks.coser import CoSER
from soul.tasks.coser_stage import CoSERRow

TRAIN_SHARE = 0.9  # of a book's plots, if the book has no split_plot_index


def convert(paths: Sequence[str | Path]) -> Rows:
    """The scenes of the files as `extra_info` dicts, in order.

    Two kinds of conversations in a book are left out: those that the authors' extraction left unusable (a line without
    a speaker or text, no speaker at all), and those of plots from which the test scenes were drawn.
    """
    left_out: Counter[str] = Counter()
    scenes = (record for path in paths for record in _file_records(Path(path), left_out))
    return Rows(numbered(scenes), left_out)


def _file_records(path: Path, left_out: Counter[str]) -> Iterator[Record]:
    book = read_json(path)
    if isinstance(book, list):
        for number, scene in enumerate(book):
            yield _record(at(f"{path}: scene {number}"), scene)
        return
    for where, scene in _scenes(path, book):
        try:
            record = _record(where, scene)
        except ValueError as error:
            left_out["conversations that the book's extraction left unusable"] += 1
            print(f"left out: {error}", file=sys.stderr)
            continue
        yield record
    held_out = book["plots"][_training_plots(book) :]
    left_out["conversations of plots held out for the test set"] += sum(
        len(plot.get("conversation") or []) for plot in held_out
    )


def _training_plots(book: Mapping[str, Any]) -> int:
    """The number of a book's plots, counted from the first, that are for training."""
    return int(book.get("split_plot_index", int(len(book["plots"]) * TRAIN_SHARE)))


def _scenes(path: Path, book: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The conversations of a book's training plots, each in the form of the test set's scenes."""
    datasets = book.get("character_datasets") or {}
    profiles = {name: (data or {}).get("profile") or "" for name, data in datasets.items()}
    for i_p, plot in enumerate(book["plots"][: _training_plots(book)]):
        for i_c, conversation in enumerate(plot.get("conversation") or []):
            scene = {
                **conversation,
                "book": book.get("book") or path.stem,
                "plot": {key: plot.get(key) for key in ("summary", "key_characters")},
                "i_p": i_p,
                "i_c": i_c,
                "character_profiles": profiles,
            }
            yield f"{path}: plot {i_p}, conversation {i_c}", scene


def _record(where: str, scene: Mapping[str, Any]) -> Record:
    row = row_of(where, CoSERRow, scene, CoSER().check)
    plot = scene.get("plot")
    places = [scene.get("i_p"), scene.get("plot_index"), plot.get("i_p") if isinstance(plot, dict) else None]
    number = next((place for place in places if place is not None), row.plot_summary)
    return {
        "question": str(scene.get("topic") or row.scenario),
        "book": row.book,
        "plot_id": f"{row.book}/{number}",
        "tag": str(scene.get("tag") or ""),  # "id" or "ood" in the test set
        "circumstance": json.dumps(_circumstance(row), ensure_ascii=False),
    }


def _circumstance(row: CoSERRow) -> dict[str, Any]:
    """The scene as the task reads it: the speakers' profiles only, and every derived field filled in."""
    return {
        "book": row.book,
        "scenario": row.scenario,
        "plot": {
            "summary": row.plot_summary,
            "key_characters": [person.model_dump() for person in row.plot_characters],
        },
        "key_characters": [person.model_dump() for person in row.key_characters],
        "character_profiles": {
            name: row.character_profiles[name] for name in row.cast if name in row.character_profiles
        },
        "dialogues": [line.model_dump() for line in row.dialogues],
        "speaking_characters_w_env": list(row.speakers),
        "major_characters": list(row.majors),
    }


BUILDER = Builder(
    "data.coser",
    __doc__,
    lambda args: convert(args.sources),
    sources="SRC.json",
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
