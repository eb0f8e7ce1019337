"""The baselines that look for shortcuts in a finished file, and the comparison with the evaluation set's shape."""

import random

import pytest

from data.training.choice_baselines import baselines, question_of, warnings
from data.training.difficulty import Measures, remarks
from soul import examples
from soul.one_turn import LetterTask
from soul.rows.task_files import parse_row
from soul.suites import soul_v1

NAMES = "lamp tree stone river cloud horse table glass bread chair plate boat shoe coat ring wheel".split()


def lifechoices(number: int, options: list[str], right: int, story: str = "A quiet life."):
    record = {"index": number, "character_name": "Mia", "book": f"Book {number}", "input_text": story}
    record |= {"question": "What does Mia do?", "options": options, "correct_answer": "ABCD"[right]}
    return parse_row("lifechoices", record, number=number)


def rows(kind: str, count: int = 200):
    rng = random.Random(kind)
    for number in range(count):
        options, right, story = [rng.choice(NAMES) + f" {n}" for n in range(4)], rng.randrange(4), "A quiet life."
        if kind == "longest":
            options[right] += " and the rest of it"
        elif kind == "marked":  # in wrong options the words are others, of the same length
            options = [f"{'maybe' if place == right else 'never'} {option}" for place, option in enumerate(options)]
            options = [option.ljust(30, "x") for option in options]
        elif kind == "overlap":
            options = [f"{rng.choice(NAMES)}{number}{place}" for place in range(4)]
            story = f"She kept the {options[right]} in her hand."
        yield lifechoices(number, options, right, story)


@pytest.mark.parametrize(
    ("kind", "found"),
    [("longest", "longest_option"), ("marked", "options_only"), ("overlap", "lexical_overlap"), ("nothing", "")],
)
def test_each_shortcut_is_found_by_its_baseline_alone(kind, found):
    measured = baselines([question for row in rows(kind) if (question := question_of(row))])
    assert measured["chance"] == 0.25
    names = {line.split()[1] for line in warnings(measured, 200)}
    # The classifier also sees the options' lengths.
    assert names - ({"options_only"} if kind == "longest" else set()) == ({found} if found else set()), measured
    assert not found or measured[found] > 0.95
    assert warnings(measured, 20) == []  # too few questions to say anything


@pytest.mark.parametrize("name", ["hitom", "paratomi", "fantom", "lifechoices", "mistakes", "twinvoice"])
def test_the_options_of_every_choice_task_are_read(name):
    example = examples.load(name)
    task = soul_v1.SETS[name].task
    parsed = [parse_row(task, {"index": number, **example.record(number)}) for number in range(12)]
    questions = [question for row in parsed if (question := question_of(row)) is not None]
    assert questions and all(one.right and max(one.right) < len(one.options) for one in questions)
    for row in parsed:
        if isinstance(row.task, LetterTask) and (question := question_of(row)):
            right = question.options[min(question.right)]
            assert right in [row.task.options(row.row)[row.task.gold(row.row)], *question.options]
            assert any(row.task.reference(row.row).endswith(question.options[place]) for place in question.right)


def test_conversations_are_measured_and_compared():
    def conversation(turns: int, words: int):
        said = [{"role": role, "content": "word " * words} for role in ("user", "assistant") * turns]
        return parse_row("mirrorbench", {"index": 0, "task_description": "Ask for a word.", "turns": said})

    ours, theirs = (Measures.from_rows([conversation(*shape)] * 3).to_json() for shape in ((2, 5), (6, 5)))
    assert ours["turns"] == {"p10": 2, "median": 2, "p90": 2} and ours["turn_words"]["median"] == 5
    assert remarks(ours, theirs) == ["median turns: 2, in the evaluation set 6"] and remarks(ours, ours) == []
    assert "choices" not in ours
