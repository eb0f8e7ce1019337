"""LifeChoices task files: both sources, and what in the stand-in gives the right option away."""

import json
import re

from data import lifechoices
from tests.data.source_files import needs, write_json
from tests.soul.samples import DATA

SOURCES = [DATA / "lifechoices" / name for name in ("motivation_dataset.json", "truth_persona_summary.json")]
needs_records = needs(SOURCES[0])
CHOICE = {
    "Scenario": "At the weir.",
    "Question": "What does Ada do?",
    "Options": ["A.She waits.", "B. She leaves.", "C.She calls.", "D.She sings."],
    "Correct Answer": "B",
    "Reasons": ["B. Correct. She always leaves."],
}


def test_the_benchmarks_own_file(tmp_path):
    record = {
        "character_name": "Ada",
        "book": "The Weir",
        "input_text": "Ada grew up.",
        "Multiple Choice Question": CHOICE,
    }
    records, left_out, *_ = lifechoices.convert([write_json(tmp_path / "data.json", [[record], [record, record]])])
    assert len(records) == 3 and not left_out and [r["index"] for r in records] == [0, 1, 2]
    assert records[0] == {
        "index": 0,
        "character_name": "Ada",
        "book": "The Weir",
        "input_text": "Ada grew up.",
        "scenario": "At the weir.",
        "question": "What does Ada do?",
        "options": ["She waits.", "She leaves.", "She calls.", "She sings."],
        "correct_answer": "B",
    }


def test_questions_about_a_character_without_a_story_are_left_out(tmp_path):
    questions = {
        "The Weir": {"Ada": [{"Multiple Choice Question": CHOICE}], "Bo \\": [{"Multiple Choice Question": CHOICE}]}
    }
    personas = [{"title": "The Weir", "persona": {"Ada": {"summary": "Ada grew up."}, "Bo": {"summary": " "}}}]
    files = [write_json(tmp_path / "q.json", questions), write_json(tmp_path / "p.json", personas)]
    for order in (files, files[::-1]):
        records, left_out, *_ = lifechoices.convert(order)
        assert [record["character_name"] for record in records] == ["Ada"]
        assert left_out == {"no story of the character": 1}


@needs_records
def test_the_right_option_is_not_told_by_its_form():
    raw = json.loads(SOURCES[0].read_text())
    choices = [q["Multiple Choice Question"] for book in raw.values() for asked in book.values() for q in asked]
    spaced = [[re.match(r"[A-D]\. ", option) is not None for option in choice["Options"]] for choice in choices]
    told = [
        flags.index(True) == ord(c["Correct Answer"]) - 65
        for flags, c in zip(spaced, choices, strict=True)
        if sum(flags) == 1
    ]
    assert len(told) > len(choices) / 2 and all(told)  # what the source gives away
    for record in lifechoices.convert(SOURCES).records:
        assert not any(re.match(r"\s|[A-D][.)]", option) for option in record["options"])
