"""The page of a dataset on the Hugging Face hub, README.md, made from the data cards of its files."""

from __future__ import annotations

from collections.abc import Mapping

from soul.rows.data_card import DataCard
from soul.table import Table

_OTHER = "other"  # how the hub calls a licence that it does not know
_ABOUT = """\
Rows to train human simulators on, built by `python -m data.train` of ditto-soul. Each row names its task in
`data_source`; `extra_info` holds the task's fields. `FILE.card.json` says more: source files with their hashes, the
models that wrote rows, and how difficult the rows are.
"""


def dataset_card(repo: str, cards: Mapping[str, DataCard]) -> str:
    """The page of a repository with these files (name -> card)."""
    from huggingface_hub import DatasetCardData

    header = DatasetCardData(
        license=sorted({terms.hub or _OTHER for card in cards.values() for terms in card.licences}) or [_OTHER],
        task_categories=["text-generation"],
        tags=["ditto-soul", "human-simulation", *dict.fromkeys(card.task for card in cards.values())],
        configs=[
            {"config_name": file.removesuffix(".parquet"), "data_files": [{"split": "train", "path": file}]}
            for file in cards
        ],
    )
    facts = [[file, card.task, f"{card.rows:,}", f"{card.groups:,}"] for file, card in cards.items()]
    overview = Table(["file", "task", "rows", "groups"], facts).markdown()
    sections = "".join(f"\n## {file}\n\n{_section(card)}" for file, card in cards.items())
    return f"---\n{header.to_yaml()}\n---\n\n# {repo.partition('/')[2]}\n\n{_ABOUT}\n{overview}{sections}"


def _section(card: DataCard) -> str:
    sources = [[terms.source, terms.licence] for terms in card.licences] or [[card.where, "not stated"]]
    parts = [
        f"Built {card.date} with seed {card.seed}: `{card.builder}`\n",
        f"Not the paper's rows: {card.stands_in}.\n" if card.stands_in else "",
        Table(["source", "licence"], sources).markdown(),
        Table(["left out, because", "rows"], [[why, f"{n:,}"] for why, n in card.left_out.items()]).markdown()
        if card.left_out
        else "",
        f"{_contamination(card)}\n",
    ]
    return "\n".join(part for part in parts if part)


def _contamination(card: DataCard) -> str:
    compared = card.contamination
    if not compared.against:
        return "The file was not compared with evaluation files."
    near = "" if compared.near is None else f", or have {compared.near:.0%} of their words in common with one"
    return (
        f"Left out, because they share a story, person, book or question with an evaluated row{near}: "
        f"{compared.rows:,} rows in {compared.groups:,} groups. Compared with {', '.join(sorted(compared.against))}."
    )
