"""What ties rows together: each task's group keys, and how overlaps are counted.

Promise under test: rows of one group share a key whatever else differs, rows of different groups share none, and keys
hold within a task, books also between CoSER and LifeChoices.
"""

import pytest

from soul import examples
from soul.rows.overlap import HeldOut
from soul.rows.task_files import TaskRow, parse_row
from tests.soul.samples import FANTOM_CHOICE, HITOM, PARATOMI

LINE = "Ann: I have kept bees behind the barn for so long that I forget how many hives there are."
OTHER = "Bob: My brother paints the boats of the whole village, and nobody has ever paid him for one."


def item(task: str, record: dict[str, object], number: int = 0) -> TaskRow:
    return parse_row(task, {"index": number, **record}, "file", number)


def example(task: str, **changes: object) -> dict[str, object]:
    return {**examples.load(task).record(0), **changes}


def prism(**changes: object) -> dict[str, object]:
    return {"source": "prism", "intent": "Plan a week in the hills", **changes}


def csqa(**changes: object) -> dict[str, object]:
    return {
        "source": "commonsense_qa",
        "question": "Where do bees live?",
        "choices": ["hive", "sea"],
        **ASKS_BACK,
        **changes,
    }


ASKS_BACK = {"conversation_history": "User: Where do bees live?\nAssistant: What do you think?"}


def coser(**changes: object) -> dict[str, object]:
    return {"book": "Emma", "plot_summary": "A ball.", "scenario": "The hall.", **changes, "dialogues": TALK}


def mirror(opening: str, **changes: object) -> dict[str, object]:
    turns = [{"role": "user", "content": opening}, {"role": "assistant", "content": "Yes."}]
    return {"task_description": "Ask something", "turns": turns, "dataset": "oasst1", **changes}


def answered(question: str, reply: str, **changes: object) -> dict[str, object]:
    turns = [{"role": "assistant", "content": question}, {"role": "user", "content": reply}]
    return {"task_description": "Search", "turns": turns, "dataset": "clariq", **changes}


TALK = [{"character": "Emma", "message": "Dance!"}, {"character": "Knightley", "message": "Never."}]
FANTOM = {**FANTOM_CHOICE, "question": "What does Carl believe about the hives?"}
ASKED = {**FANTOM, "question_type": "tom:answerability:binary", "correct_answer": "no", "answer_choices": []}
PARAPHRASE = ["The garden is where Isla is.", "Gloves lie in the crate.", "Isla put them into the treasure_chest."]
TWIN = {"anchor_post": "Rain again.", "answer_choices": ["Yes.", "No."], "answer_idx": 0}

# what ties the two rows -> task, row, other row
TIED: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
    "hitom, another question": ("hitom", HITOM, {**HITOM, "question": "Where was the tomato?"}),
    "fantom, a longer excerpt": (
        "fantom",
        {**ASKED, "context": f"Ann: Hi.\n{LINE}"},
        {**ASKED, "context": f"Eve: Hello!\n{OTHER}\n{LINE}", "question": "Who knows it?"},
    ),
    "fantom, official ids": (
        "fantom",
        {**ASKED, "context": LINE, "set_id": "12-0-1"},
        {**ASKED, "context": OTHER, "set_id": "12-3-0"},
    ),
    "fantom, a question about a belief": ("fantom", {**FANTOM, "context": LINE}, {**FANTOM, "context": OTHER}),
    "paratomi, a paraphrase": ("paratomi", PARATOMI, {**PARATOMI, "story": PARAPHRASE}),
    "coser, other scenes of a plot": ("coser", coser(tag="id"), coser(tag="id", scenario="The garden.")),
    "coser, a book out of distribution": (
        "coser",
        coser(plot_summary="A picnic.", scenario="The hill."),
        coser(book="EMMA", tag="ood"),
    ),
    "lifechoices, another character of a book": (
        "lifechoices",
        example("lifechoices", book="Emma"),
        example("lifechoices", book="emma.", character_name="Harriet", scenario="A letter."),
    ),
    "sotopia, environment": (
        "sotopia",
        example("sotopia", env_id="01H", codename="a", scenario="At home."),
        example("sotopia", env_id="01H", codename="b", scenario="At sea."),
    ),
    "mistakes, another misconception": (
        "mistakes",
        example("mistakes"),
        example("mistakes", MisconceptionName="Adds everything", TargetOption="D", TargetAnswer=""),
    ),
    "mirrorbench, opening": ("mirrorbench", mirror("Tell me of bees"), mirror("tell me of  BEES", dataset="arena")),
    "mirrorbench, topic": (
        "mirrorbench",
        answered("Honey?", "no", group="topic-12"),
        answered("Wax?", "yes", group="topic-12", dataset="qulac"),
    ),
    "userllm, question": ("userllm", csqa(), csqa(conversation_history="User: Where?\nAssistant: Sea?")),
    "userllm, conversation": ("userllm", prism(group="prism-c1"), prism(group="prism-c1", intent="Pack a bag")),
    "twinvoice, user": (
        "twinvoice",
        {**TWIN, "dimension": "1", "group": "did:plc:1"},
        {**TWIN, "dimension": "1", "group": "did:plc:1", "anchor_post": "Sun."},
    ),
}

# why the two rows are no group -> task, row, other row
APART: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
    "hitom, another story": ("hitom", HITOM, {**HITOM, "story": "1 Eve entered the den."}),
    "fantom, a question that any conversation may have": (
        "fantom",
        {**ASKED, "context": LINE, "set_id": "12-0-1"},
        {**ASKED, "context": OTHER, "set_id": "13-0-1"},
    ),
    "fantom, a short line": (
        "fantom",
        {**ASKED, "context": f"Ann: Absolutely!\n{LINE}"},
        {**ASKED, "context": f"Ann: Absolutely!\n{OTHER}"},
    ),
    "paratomi, another person": (
        "paratomi",
        PARATOMI,
        {**PARATOMI, "story": [s.replace("Isla", "Mia") for s in PARAPHRASE]},
    ),
    "coser, another plot of a book in distribution": (
        "coser",
        coser(plot_summary="A picnic.", scenario="The hill."),
        coser(tag="id"),
    ),
    "mirrorbench, a short reply": ("mirrorbench", answered("Honey?", "no"), answered("Wax?", "no")),
    "twinvoice, users of one network": (
        "twinvoice",
        {**TWIN, "dimension": "1", "group": "did:plc:1"},
        {**TWIN, "dimension": "1", "group": "did:plc:2"},
    ),
}


@pytest.mark.parametrize("name", TIED)
def test_rows_of_a_group_overlap(name: str) -> None:
    task, train, val = TIED[name]
    (found,) = HeldOut([item(task, val)]).overlaps([item(task, train)])
    assert (found.task, found.rows, found.groups) == (task, (0,), 1)


@pytest.mark.parametrize("name", APART)
def test_other_rows_do_not(name: str) -> None:
    task, train, val = APART[name]
    assert not HeldOut([item(task, val)]).overlaps([item(task, train)])


def test_books_hold_across_tasks_and_nothing_else_does() -> None:
    choice = item("lifechoices", example("lifechoices", book="Emma"))
    assert HeldOut([choice]).overlaps([item("coser", coser())])
    assert HeldOut([item("coser", coser(tag="ood"))]).overlaps([choice])
    question = example("mistakes", QuestionText="Where do bees live?")
    assert not HeldOut([item("mistakes", question)]).overlaps([item("userllm", csqa())])


def test_a_task_without_groups_of_its_own_compares_prompts() -> None:
    first, second = (item("socsci210", examples.load("socsci210").record(number)) for number in (0, 1))
    assert first.task.prompt(first.row) != second.task.prompt(second.row)
    assert HeldOut([first]).overlaps([first]) and not HeldOut([first]).overlaps([second])


def test_groups_are_counted_by_the_first_key_that_a_row_shares() -> None:
    lines = [
        f"Ann: This is line number {number} of a talk, and it is long enough to tell it apart." for number in "1234"
    ]
    talks = [lines[:2], lines[:1], lines[2:3], lines[2:]]
    rows = [item("fantom", {**ASKED, "context": "\n".join(talk)}, number) for number, talk in enumerate(talks)]
    (found,) = HeldOut(rows).overlaps(rows)
    assert (found.rows, found.groups, len(found.examples)) == ((0, 1, 2, 3), 2, 2)
    assert "4 rows in 2 groups" in str(found) and "line number 1" in found.examples[0]
