"""LifeChoices task files: decisions of characters of novels, with the story of each character.

    python -m data.lifechoices convert data.json --rows 600 --out data/sim_eval_data/lifechoices_val.parquet
    python -m data.lifechoices convert data.json --rows 600 \\
        --train-out data/sim_rl_data/lifechoices_hard_rl.parquet --val-out data/sim_eval_data/lifechoices_val.parquet
    python -m data.lifechoices convert motivation_dataset.json truth_persona_summary.json --out all.parquet

The paper evaluates 600 rows; --rows draws whole books, so that no book is on both sides.

Sources: data.json is the benchmark's own file (github.com/airaer1998/LifeChoice, data/, Apache-2.0: lists of
characters, one list a book). The other two files are a stand-in (github.com/Joanna0123/character_profiling, MIT):
book -> character -> questions in one, a summary of each character's story in the other. Its questions ask for motives,
and its summaries are short.

In the stand-in, a space follows the letter of the right option ("A. x") and often no other letter ("B.x"), so letters
and spaces are removed. A few characters' names are damaged in its JSON ("Wilhelmina \\\\") and have no summary: their
questions are left out and counted.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data.builder_cli import Builder, Draw, Rows
from data.reading import at, options_and_gold, read_json
from data.rows import Record, numbered

_CHOICE = "Multiple Choice Question"


class _Question(NamedTuple):
    where: str
    book: str
    character: str
    story: str
    choice: Mapping[str, Any]


def convert(paths: Sequence[str | Path]) -> Rows:
    """The decisions in these files as `extra_info` dicts, in the files' order."""
    stories: dict[tuple[str, str], str] = {}
    contents = [(Path(path), read_json(Path(path))) for path in paths]
    for path, content in contents:
        stories |= _summaries(path, content)
    questions = [question for path, content in contents for question in _questions(path, content, stories)]
    with_story = [question for question in questions if question.story.strip()]
    left_out = Counter({"no story of the character": len(questions) - len(with_story)})
    return Rows(numbered(map(_record, with_story)), +left_out)


def _summaries(path: Path, content: Any) -> dict[tuple[str, str], str]:
    """(book, character) -> summary, of the stand-in's second file; nothing of another file."""
    at(str(path))
    books = content if _holds_summaries(content) else []
    return {
        (str(book.get("title")), name): str(persona.get("summary") or "")
        for book in books
        for name, persona in book["persona"].items()
    }


def _holds_summaries(content: Any) -> bool:
    return isinstance(content, list) and any(isinstance(book, dict) and "persona" in book for book in content)


def _questions(path: Path, content: Any, stories: Mapping[tuple[str, str], str]) -> Iterator[_Question]:
    at(str(path))
    if isinstance(content, dict):
        for book, characters in content.items():
            for character, questions in characters.items():
                for number, question in enumerate(questions, start=1):
                    where = at(f"{path}: {book}, {character}, question {number}")
                    yield _Question(where, book, character, stories.get((book, character), ""), question[_CHOICE])
    elif not _holds_summaries(content):
        for number, book in enumerate(content, start=1):
            for record in book if isinstance(book, list) else [book]:
                where = at(f"{path}: entry {number}, {record.get('character_name')}")
                title, story = str(record.get("book") or ""), str(record.get("input_text") or "")
                yield _Question(where, title, str(record.get("character_name") or ""), story, record[_CHOICE])


def _record(question: _Question) -> Record:
    choice = question.choice
    at(question.where)
    fields = "fields 'Options' and 'Correct Answer'"
    options, gold = options_and_gold(question.where, choice["Options"], choice["Correct Answer"], fields)
    if not question.book.strip():
        raise ValueError(
            f"{question.where}: field 'book' is missing or empty; without it the characters of a novel could be on "
            "both sides of a split. Write the novel's title into each record."
        )
    return {
        "character_name": question.character,
        "book": question.book,
        "input_text": question.story,
        "scenario": str(choice.get("Scenario") or ""),
        "question": choice["Question"],
        "options": options,
        "correct_answer": gold,
    }


BUILDER = Builder(
    "data.lifechoices",
    __doc__,
    lambda args: convert(args.sources),
    sources="SRC.json",
    draw=Draw("--rows", "whole books of up to N rows", group="book", groups="books"),
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
