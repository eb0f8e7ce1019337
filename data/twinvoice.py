"""TwinVoice task files: a person's earlier words, a new occasion, and four replies, one of them the person's.

    python -m data.twinvoice convert dimension_3/choices.jsonl dimension_3/profiles.jsonl --out twinvoice_val.parquet

Source: github.com/TwinVoice/TwinBench (no licence). The narrative dimension has its questions in one file and the
characters in the other (one JSON object, whatever its name says). The social and interpersonal dimensions have
everything in one record: history, anchor_post or context, choices, answer_idx. As in the benchmark's own evaluation, a
row shows the last 30 lines of the history, and of a character also traits and goals.

Some of these texts contain the right reply, literally or almost: in the narration before it, or in the history. The
benchmark shows them as they are, and so do we.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from data.builder_cli import Builder, Rows
from data.reading import options_and_gold, read_json_lines, read_text, required_text
from data.rows import Record, numbered
from soul.row_fields import clean_text, to_prose

HISTORY = 30  # lines of the history that the benchmark's own evaluation shows


class _Person(NamedTuple):
    name: str
    persona: str
    history: list[tuple[int, str]]  # (place in the book, utterance), in order


def convert(paths: Sequence[str | Path]) -> Rows:
    """The questions in these files as `extra_info` dicts, in the files' order."""
    people: dict[str, _Person] = {}
    questions: list[tuple[str, dict[str, Any]]] = []
    for path in map(Path, paths):
        if characters := _people(read_text(path)):
            people |= characters
        else:
            questions += read_json_lines(path)
    return Rows(
        numbered(_narrative(where, raw, people) if "mcq" in raw else _social(where, raw) for where, raw in questions)
    )


def _people(text: str) -> dict[str, _Person]:
    """Name -> character if the text is a file of characters; empty if it is a file of questions."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # read_json_lines reports what is wrong
        return {}
    characters = content.get("characterList") if isinstance(content, dict) else None
    people = {}
    for character in (characters or {}).values():
        name = clean_text(character.get("NameCanonical"))
        known = {"Traits": "Personality Traits", "Goals": "Motivation and Goals", "Details": "Additional Details"}
        persona = to_prose({title: character.get(key) for title, key in known.items()})
        said = [
            (_place(entry), clean_text(entry.get("utterance"))) for entry in character.get("UtteranceHistory") or []
        ]
        people[name] = _Person(name, persona, sorted((place, words) for place, words in said if words))
    return people


def _place(record: Mapping[str, Any]) -> int:
    """The place of a record in the book: the number of its chunk, or the end if it has none."""
    number = clean_text(record.get("chunk_id"))
    return int(number) if number.isdecimal() else sys.maxsize


def _narrative(where: str, raw: dict[str, Any], people: Mapping[str, _Person]) -> Record:
    person = people.get(raw.get("speaker_match_key") or "") or people.get(raw.get("speaker") or "")
    if person is None:
        raise ValueError(
            f"{where}: field 'speaker': {raw.get('speaker')!r} is in no file of characters; give it as well"
        )
    # Later utterances of the character would reveal how the scene goes on.
    before = [words for place, words in person.history if place < _place(raw)]
    options, gold = options_and_gold(where, raw["mcq"].get("options"), raw["mcq"].get("answer"), "options or answer")
    occasion = required_text(where, raw, "context")
    group = f"{clean_text(raw.get('source_novel'))}:{person.name}"
    return _record(occasion, "3", person.name, person.persona, before, options, gold, group)


def _social(where: str, raw: dict[str, Any]) -> Record:
    field, dimension = ("anchor_post", "1") if raw.get("anchor_post") else ("context", "2")
    options, gold = options_and_gold(where, raw["choices"], ascii_uppercase[raw["answer_idx"]], "options or answer")
    history = [text for text in (to_prose(line) for line in raw.get("history") or []) if text]
    occasion = required_text(where, raw, field)
    return _record(occasion, dimension, "", "", history, options, gold, clean_text(raw.get("user_id")) or where)


def _record(
    occasion: str,
    dimension: str,
    speaker: str,
    persona: str,
    history: Sequence[str],
    options: list[str],
    gold: str,
    group: str,
) -> Record:
    return {
        "question": occasion,
        "anchor_post": occasion,
        "dimension": dimension,
        "speaker": speaker,
        "persona": persona,
        "conversation_history": json.dumps(history[-HISTORY:], ensure_ascii=False),
        "answer_choices": options,
        "answer_idx": ascii_uppercase.index(gold),
        "group": group,
    }


BUILDER = Builder(
    "data.twinvoice",
    __doc__,
    lambda args: convert(args.sources),
    sources="SRC.jsonl",
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
