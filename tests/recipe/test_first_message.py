"""The demo of a real model: its reward, its critique, and its parts."""

from recipe.demo.first_message import HELD_BACK, critique, reward, split
from soul.function_task import PromptRow

ASKED = "what states are part of the southeast region of brazil?"
ROW = PromptRow.model_validate({"index": 0, "prompt": "The user seeks states.", "answer": ASKED})


def test_only_the_persons_message_has_full_marks_and_an_assistant_none() -> None:
    assert reward(ROW, ASKED) == 1.0
    assert reward(ROW, "Sure, I can help you with the states of southeast Brazil.") == 0.0
    assert reward(ROW, "one two three four five six seven eight nine ten") == 1 / 3  # as long, about something else
    assert 1 / 3 < reward(ROW, "the states of southeast brazil") < 1.0


def test_the_critique_names_each_fault_and_no_word_of_the_person() -> None:
    faults = critique(ROW, "I'm here to help you with anything that you may want to know, so please just ask away.")
    assert faults == (
        "That is how an assistant talks. You are the user: say what you want. "
        "Too long: this person types 10 words. Name the subject itself."
    )
    assert critique(ROW, "southeast brazil").startswith("Too short") and critique(ROW, ASKED).startswith("Good")


def test_a_topic_is_in_one_part_only() -> None:
    people = [{"group": f"topic-{number // 3}", "answer": str(number)} for number in range(400)]
    parts = split(people)
    topics = [{person["group"] for person in part} for part in parts.values()]
    assert sum(map(len, topics)) == len(set.union(*topics)) and sum(map(len, parts.values())) == 400
    assert HELD_BACK <= len(parts["heldback"]) < HELD_BACK + 3
