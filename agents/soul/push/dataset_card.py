"""The page of a dataset on the Hugging Face hub, README.md, made from the data cards of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from soul.rows.data_card import DataCard, ModelCalls
from soul.table import Table

_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
_LARGEST = "n>1M"
_OTHER = "other"  # how the hub calls a licence that it does not know


def dataset_card(repo: str, cards: Mapping[str, DataCard]) -> str:
    """The page of a repository with these files (name -> card)."""
    from huggingface_hub import DatasetCardData

    rows = sum(card.rows for card in cards.values())
    header = DatasetCardData(
        license=_licences(cards),
        size_categories=[next((size for limit, size in _SIZES.items() if rows < limit), _LARGEST)],
        task_categories=["text-generation"],
        tags=["ditto-soul", "human-simulation", *dict.fromkeys(card.task for card in cards.values())],
        configs=[
            {"config_name": file.removesuffix(".parquet"), "data_files": [{"split": "train", "path": file}]}
            for file in cards
        ],
    )
    facts = [[file, card.task, f"{card.rows:,}", f"{card.groups:,}"] for file, card in cards.items()]
    overview = Table(["file", "task", "rows", "groups"], facts).markdown()
    sections = (f"\n## {file}\n\n{''.join(_section(card))}" for file, card in cards.items())
    return f"---\n{header.to_yaml()}\n---\n\n# {repo.partition('/')[2]}\n\n{_ABOUT}\n{overview}{''.join(sections)}"


_ABOUT = """\
Rows to train human simulators on, built by `python -m data.train` of ditto-soul. Each row names its task in
`data_source`; `extra_info` holds the task's fields. `FILE.card.json` has all that follows, with hashes.
"""


def _licences(cards: Mapping[str, DataCard]) -> list[str]:
    """The licences' identifiers; `other` stands for those that the hub does not know."""
    stated = {terms.hub or _OTHER for card in cards.values() for terms in card.licences}
    return sorted(stated) or [_OTHER]


def _section(card: DataCard) -> Iterator[str]:
    yield f"Built {card.date} with seed {card.seed}: `{card.builder}`\n"
    if card.stands_in:
        yield f"\nNot the paper's rows: {card.stands_in}.\n"
    sources = [[terms.source, terms.licence] for terms in card.licences] or [[card.where, "not stated"]]
    yield _table("Sources", ["source", "licence"], sources)
    read = [[source.name, f"{source.bytes:,}"] for source in card.sources]
    yield _table("Source files", ["file", "bytes"], read)
    yield _table("Rows that were left out", ["reason", "rows"], [[why, f"{n:,}"] for why, n in card.left_out.items()])
    yield f"\n{_contamination(card)}\n"
    yield _table("Models", ["role", "model", "prompt", "calls", "cost"], [_calls(use) for use in card.models])
    yield _table("Difficulty", ["measure", "this file", "evaluation set"], list(_difficulty(card)))


def _table(title: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table with its title; nothing if it has no lines."""
    return f"\n### {title}\n\n{Table(head, body).markdown()}" if body else ""


def _contamination(card: DataCard) -> str:
    compared = card.contamination
    if not compared.against:
        return "The file was not compared with evaluation files."
    near = "" if compared.near is None else f", or have {compared.near:.0%} of their words in common with one"
    return (
        f"Left out, because they share a story, person, book or question with an evaluated row{near}: "
        f"{compared.rows:,} rows in {compared.groups:,} groups. Compared with {', '.join(sorted(compared.against))}."
    )


def _calls(use: ModelCalls) -> list[str]:
    return [use.role, use.model, use.prompt, f"{use.calls:,}", "unknown" if use.usd is None else f"${use.usd:,.2f}"]


def _difficulty(card: DataCard) -> Iterator[list[str]]:
    ours, theirs = card.difficulty.get("training", {}), card.difficulty.get("evaluation", {})
    for measure, values in ours.items():
        for name, value in values.items():
            evaluated = theirs.get(measure, {}).get(name)
            shown = [f"{number:,.4g}" if number is not None else "" for number in (value, evaluated)]
            yield [f"{measure}, {name}".replace("_", " "), *shown]
