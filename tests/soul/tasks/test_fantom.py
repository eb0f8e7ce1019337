"""What counts as an answer to a question of FanToM."""

import pytest

from soul.rows.task_files import parse_row
from tests.soul.samples import FANTOM_BINARY, FANTOM_CHOICE, FANTOM_FACT, FANTOM_LIST, tagged, verdict_of

YES = {**FANTOM_BINARY, "correct_answer": "yes"}


@pytest.mark.parametrize(
    "record, answer, score",
    [
        (FANTOM_BINARY, "False", 1),
        (FANTOM_BINARY, "She doesn't know it.", 1),
        (FANTOM_BINARY, "Carl does not know this", 1),
        (YES, "Ann knows this", 1),
        (YES, "True.", 1),
        (FANTOM_BINARY, "Nobody told her", 0),
        (YES, "No one knows this", 0),
        (FANTOM_BINARY, "It is unknown", 0),
        (YES, "yes and no", 0),
        (YES, "No, she knows it", 0),
        (FANTOM_LIST, "Anna, Bobby", 0),
        (FANTOM_LIST, "Ann, Bob", 1),
        (FANTOM_LIST, "Ann, Bob, not Carl", 0),
        (FANTOM_CHOICE, "B", 1),
        (FANTOM_CHOICE, "I choose (b) here", 0),
        (FANTOM_CHOICE, "Option B", 1),
        (FANTOM_FACT, "three hives", 1),
        (FANTOM_FACT, "Three hives.", 1),
    ],
)
def test_an_answer_is_read_where_it_is_unambiguous(record, answer, score):
    assert verdict_of(parse_row("fantom", record), tagged(answer)).reward == score
