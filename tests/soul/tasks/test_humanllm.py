"""HumanLLM: five ranked letters, and a list of candidates that the policy sees once, with the letters it answers in."""

import pytest

from soul.tasks.humanllm import HumanLLM, HumanLLMRow, without_candidates
from tests.soul.tasks.one_turn_samples import HUMANLLM, tagged, verdict_of

TASK = HumanLLM()


def row_with(**fields):
    return HumanLLMRow.model_validate({**HUMANLLM, **fields})


@pytest.mark.parametrize(
    "answer, reward, hit, top",
    [
        ("D,A,B,C,E", 1.0, 1.0, 1.0),
        ("A,B,D,C,E", 1 / 3, 1.0, 0.0),
        ("A,B,C,E,D", 1 / 5, 1.0, 0.0),
        ("A,B,C,E,T", 0.0, 0.0, 0.0),
    ],
)
def test_reciprocal_rank(answer, reward, hit, top):
    verdict = verdict_of(TASK, row_with(), tagged(answer))
    assert verdict.reward == reward
    assert verdict.metrics == {"mrr@5": reward, "hit@5": hit, "top1_acc": top, "answered": 1.0, "answered_strict": 1.0}


@pytest.mark.parametrize(
    "answer",
    ["D A B C E", "D;A;B;C;E", "[D, A, B, C, E]", "**D, A, B, C, E**", "(D), (A), (B), (C), (E)", "D > A > B > C > E"]
    + ["Answer: D, A, B, C, E", "\uff24\uff0c\uff21\uff0c\uff22\uff0c\uff23\uff0c\uff25", "D.\nA.\nB.\nC.\nE."],
)
def test_a_ranking_is_read_however_it_is_dressed_unless_strictly(answer):
    metrics = verdict_of(TASK, row_with(), tagged(answer)).metrics
    assert (metrics["mrr@5"], metrics["answered"], metrics["answered_strict"]) == (1.0, 1.0, 0.0)
    assert verdict_of(HumanLLM(strict_answers=True), row_with(), tagged(answer)).metrics["answered"] == 0.0


@pytest.mark.parametrize(
    "fields, letter",
    [
        ({}, "D"),
        ({"answer_text": "  thing 5 "}, "F"),  # the text counts: an index may count from 1
        ({"answer_text": "F. Thing 5"}, "F"),
        ({"answer_text": None}, "D"),
        ({"answer_text": "gone"}, "D"),
        ({"answer_text": None, "answer_index": None, "answer_letter": "t"}, "T"),
        ({"answer_text": None, "answer_index": 0}, "A"),
        ({"candidates": ["x", "x", "y", "z", "w"], "answer_text": "x", "answer_index": 1}, "B"),
    ],
)
def test_ways_to_name_the_item(fields, letter):
    row = row_with(**fields)
    TASK.check(row)
    assert TASK.gold(row) == letter


def test_the_originals_inline_list_is_shown_once_and_its_history_line_by_line():
    inline = ", ".join(f"Candidate {n + 1}: Thing {n}" for n in range(20))
    row = row_with(prompt_text=f"Buys outdoors. History 1: Thing 3, History 2: Tent\nCandidates: {inline}.\nPick one.")
    assert row.history == "Buys outdoors.\nHistory 1: Thing 3\nHistory 2: Tent\nPick one."
    prompt = TASK.prompt(row)[0]["content"]
    assert "Candidate" not in prompt and prompt.count("Thing 19") == 1 and prompt.count("Thing 3\n") == 2
    behind = f"Buys outdoors. {inline}. History 1: Thing 19, History 2: Tent"
    assert without_candidates(behind, HUMANLLM["candidates"]).endswith("\nHistory 1: Thing 19, History 2: Tent")
    other = "Candidate 1: Thing 3 was mentioned once."  # not a list of them all
    assert without_candidates(other, HUMANLLM["candidates"]) == other
