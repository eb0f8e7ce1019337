"""SocSci210: the distance on a scale, exact answers, and a critique in which no number stands."""

import pytest

from soul.leaks.redaction import redact
from soul.tasks.socsci210 import SocSci210, SocSci210Row, thinking_allowed
from tests.soul.tasks.one_turn_samples import SOCSCI, tagged, verdict_of

TASK = SocSci210()
BINARY = {"response_type": "binary", "response": 1, "r_min": 0, "r_max": 1, "prompt_text": "Would you vote?"}


def row_with(**fields):
    return SocSci210Row.model_validate({**SOCSCI, **fields})


def reward(answer, **fields):
    return verdict_of(TASK, row_with(**fields), tagged(answer)).reward


@pytest.mark.parametrize(
    "answer, fields, score",
    [
        ("5", {}, 1.0),
        ("4", {}, 5 / 6),
        ("1", {}, 1 / 3),
        ("7", {}, 2 / 3),
        ("99", {}, 2 / 3),  # clipped to the scale
        ("-99", {}, 1 / 3),
        ("1", {"response": 7}, 0.0),
        ("0", {"r_min": None, "r_max": None, "response": 7}, 0.0),  # the scale of the original's rows without one
        ("3", {"r_min": None, "r_max": None, "response": 3.5}, 1 - 0.5 / 7),
        ("60", {"r_min": 0, "r_max": 100, "response": 20}, 0.6),
        ("-3", {"r_min": -3, "r_max": 3, "response": 3}, 0.0),
    ],
)
def test_ordinal(answer, fields, score):
    assert reward(answer, **fields) == pytest.approx(score)


@pytest.mark.parametrize(
    "answer, score", [("1", 1.0), ("yes", 1.0), ("YES.", 1.0), ("0", 0.0), ("no", 0.0), ("2", 0.0), ("maybe", 0.0)]
)
def test_binary(answer, score):
    assert reward(answer, **BINARY) == score
    assert reward(answer, **{**BINARY, "r_max": None, "r_min": None}) == score  # 0 and 1 where the row does not say
    opposite = {"1": 0.0, "yes": 0.0, "YES.": 0.0, "0": 1.0, "no": 1.0}.get(answer, 0.0)
    assert reward(answer, **{**BINARY, "response": 0}) == opposite


@pytest.mark.parametrize(
    "text, freed",
    [
        ("Only return a number from 1 (no) to 7 (yes).", "Think first, then return a number from 1 (no) to 7 (yes)."),
        ("Please only respond with the number, nothing else.", "Think first, then respond with the number."),
        ("Answer only with a number and nothing else!", "Answer with a number!"),
        ("I only slept two hours and have nothing to lose.", "I only slept two hours and have nothing to lose."),
    ],
)
def test_the_demand_for_the_bare_number_goes_and_the_scale_stays(text, freed):
    assert thinking_allowed(text) == freed


# To blank the right number alone would give it away: "from 1 to [withheld]".
def test_every_step_of_the_scale_is_blanked():
    text, withheld = redact(
        "From 1 to 7, or one to seven: you said 5, not at all; surely six.", TASK.secrets(row_with())
    )
    assert len(withheld) == 8 and not any(
        word in text for word in ("1", "5", "7", "one", "six", "seven", "surely", "at all")
    )
    assert set("0123456789") & set(redact("12 people", TASK.secrets(row_with()))[0])  # what is off the scale stays
