"""TwinVoice task files: a person's earlier words, a new occasion, and four replies, one of them the person's.

    python -m data.twinvoice convert dimension_3/choices.jsonl dimension_3/profiles.jsonl --out twinvoice_val.parquet
    python -m data.twinvoice convert dimension_1.jsonl --without-leaks --out clean.parquet

Source: github.com/TwinVoice/TwinBench (no licence). The narrative dimension has its questions in one file and the
characters in the other (one JSON object, whatever its name says). The social and interpersonal dimensions have
everything in one record: history, anchor_post or context, choices, answer_idx. As in the benchmark's own evaluation, a
row shows the last 30 lines of the history, and of a character also traits and goals.

Some of these texts contain the right reply, literally or almost: in the narration before it, or in the history. The
benchmark shows them as they are, and so do we. With --without-leaks such sentences are blanked ("[...]"), such history
lines are dropped, and both are counted; a row is left out if blanking leaves nothing to reply to.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from data.builder_cli import Builder, Rows, argument
from data.reading import options_and_gold, read_json_lines, read_text, required_text
from data.rows import Record
from soul.leaks.quotations import runs
from soul.row_fields import clean_text, to_prose

HISTORY = 30  # lines of the history that the benchmark's own evaluation shows
_RUN = 6  # consecutive words that two texts do not share by chance
_BLANK = "[...]"
# A word; or one character of a script without spaces between words.
_WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff]|[^\W_\u2e80-\u9fff\uac00-\ud7ff]+(?:['’][^\W_]+)*")
_SENTENCE = re.compile(r"[^.!?。！？“”\"\n]+[.!?。！？]*")


class _Person(NamedTuple):
    name: str
    persona: str
    history: list[tuple[int, str]]  # (place in the book, utterance), in order


def convert(paths: Sequence[str | Path], *, without_leaks: bool = False) -> Rows:
    """The questions in these files as `extra_info` dicts, in the files' order.

    Args:
        without_leaks: remove what gives the right reply away (`without_answer`).

    Raises ValueError naming file, line and field.
    """
    people: dict[str, _Person] = {}
    questions: list[tuple[str, dict[str, Any]]] = []
    for path in map(Path, paths):
        if characters := _people(read_text(path)):
            people |= characters
        else:
            questions += read_json_lines(path)
    records: list[Record] = []
    left_out: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for where, raw in questions:
        record = _narrative(where, raw, people) if "mcq" in raw else _social(where, raw)
        cleaned = without_answer(record, removed) if without_leaks else record
        if cleaned is None:
            left_out["the occasion is the right reply itself"] += 1
        else:
            records.append({"index": len(records), **cleaned})
    return Rows(records, left_out, removed)


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
        utterances = [
            (_place(entry), clean_text(entry.get("utterance"))) for entry in character.get("UtteranceHistory") or []
        ]
        people[name] = _Person(name, persona, sorted((place, words) for place, words in utterances if words))
    return people


def _place(record: Mapping[str, Any]) -> int:
    """Where in the book a record stands: the number of its chunk, or the end if it has none."""
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
    mcq = raw["mcq"]
    options, gold = options_and_gold(where, mcq.get("options"), mcq.get("answer"), "options or answer")
    return {
        **_occasion(where, raw, "context"),
        "dimension": "3",
        "speaker": person.name,
        "persona": person.persona,
        "conversation_history": json.dumps(before[-HISTORY:], ensure_ascii=False),
        "answer_choices": options,
        "answer_idx": ascii_uppercase.index(gold),
        "group": f"{clean_text(raw.get('source_novel'))}:{person.name}",
    }


def _social(where: str, raw: dict[str, Any]) -> Record:
    field, dimension = ("anchor_post", "1") if raw.get("anchor_post") else ("context", "2")
    number = raw.get("answer_idx")
    choices = raw.get("choices")
    if not isinstance(number, int) or not isinstance(choices, list) or not 0 <= number < len(choices):
        raise ValueError(f"{where}: fields 'choices' and 'answer_idx' must be a list and an index into it")
    options, gold = options_and_gold(where, choices, ascii_uppercase[number], "options or answer")
    history = [text for text in (to_prose(line) for line in raw.get("history") or []) if text]
    return {
        **_occasion(where, raw, field),
        "dimension": dimension,
        "speaker": "",
        "persona": "",
        "conversation_history": json.dumps(history[-HISTORY:], ensure_ascii=False),
        "answer_choices": options,
        "answer_idx": ascii_uppercase.index(gold),
        "group": clean_text(raw.get("user_id")) or where,
    }


def _occasion(where: str, raw: dict[str, Any], field: str) -> Record:
    occasion = required_text(where, raw, field)
    return {"question": occasion, "anchor_post": occasion}


def without_answer(record: Record, removed: Counter[str]) -> Record | None:
    """The record with the right reply removed from history and occasion; None if too little of the occasion is left."""
    gold = record["answer_choices"][record["answer_idx"]]
    history = json.loads(record["conversation_history"])
    kept = [line for line in history if not tells(line, gold)]
    removed["lines of the history with the right reply"] += len(history) - len(kept)
    anchor, blanked = blank_out(record["anchor_post"], gold)
    removed["sentences of the occasion with the right reply"] += blanked
    if blanked and len(_words(anchor)) < _RUN:
        return None
    changed = {"question": anchor, "anchor_post": anchor}
    return {**record, **changed, "conversation_history": json.dumps(kept, ensure_ascii=False)}


def tells(text: str, gold: str) -> bool:
    """Whether a text gives a reply away: they share a run of words, or one contains the other."""
    words, reply = _words(text), _words(gold)
    if words == reply:
        return bool(words)
    if not set(runs(words, _RUN)).isdisjoint(runs(reply, _RUN)):
        return True
    short, long = sorted((words, reply), key=len)
    return len(short) >= 3 and tuple(short) in runs(long, len(short))


def blank_out(text: str, gold: str) -> tuple[str, int]:
    """Replace each sentence, or quoted part of one, that gives the reply away by "[...]". Returns text and count."""
    count = 0

    def blanked(sentence: re.Match[str]) -> str:
        nonlocal count
        if not tells(sentence.group(), gold):
            return sentence.group()
        count += 1
        return f" {_BLANK}" if sentence.group()[0].isspace() else _BLANK

    text = _SENTENCE.sub(blanked, text)
    return re.sub(rf"{re.escape(_BLANK)}(?:\s*{re.escape(_BLANK)})+", _BLANK, text), count


def _words(text: str) -> list[str]:
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


def side(record: Record) -> str:
    """The group that stays on one side of a split: a user, or a novel with all its characters."""
    return str(record["group"]).rpartition(":")[0] if record["dimension"] == "3" else str(record["group"])


BUILDER = Builder(
    "data.twinvoice",
    __doc__,
    lambda args: convert(args.sources, without_leaks=args.without_leaks),
    group=side,
    groups="users and novels",
    answer_letter=lambda record: ascii_uppercase[record["answer_idx"]],
    sources="SRC.jsonl",
    options=[argument("--without-leaks", action="store_true", help="remove texts that give the right reply away")],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
