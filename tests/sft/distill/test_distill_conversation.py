"""What a seat's conversation becomes, and which rows and texts are the same."""

import json
import random

import pytest

from sft.distill.sample import Unusable, digest, normalised, seat_fingerprints, trainable
from sft.distill.sampling import RowIdentity
from soul import examples
from soul.rows.near_text import NEAR
from soul.rows.overlap import HeldOut
from soul.rows.task_files import parse_row

HEARD, SAID = {"role": "user", "content": "Go."}, {"role": "assistant", "content": "I go."}


def test_what_came_after_the_last_turn_goes():
    assert trainable([HEARD, SAID, HEARD]) == [HEARD, SAID]
    assert trainable([HEARD, SAID, HEARD, SAID]) == [HEARD, SAID, HEARD, SAID]
    assert seat_fingerprints("a", trainable([HEARD, SAID, HEARD])) == seat_fingerprints("a", [HEARD, SAID])


@pytest.mark.parametrize(
    "messages, reason",
    [
        ([HEARD], "no turn"),
        ([HEARD, {"role": "assistant", "content": " "}, HEARD, SAID], "blank turn"),
        ([HEARD, {"role": "assistant", "content": "half \ud83d"}], "broken character"),
    ],
)
def test_what_cannot_be_trained_says_why(messages, reason):
    with pytest.raises(Unusable, match=reason):
        trainable(messages)


def test_who_says_what_matters():
    swapped = [{**HEARD, "role": "assistant"}, {**SAID, "role": "user"}, SAID]
    others = [[HEARD, SAID], [HEARD, HEARD, SAID], swapped, [{**HEARD, "content": "Stay."}, SAID]]
    assert len({seat_fingerprints("a", messages).whole for messages in others}) == 4
    assert seat_fingerprints("a", others[0]).trained == seat_fingerprints("a", others[3]).trained


def test_what_counts_as_the_same_text():
    same = ["Well, I'd go!", "well i'd  GO", "*Well*, I'd go"]
    assert len({digest([text]) for text in same}) == 1
    others = ["<answer>A</answer>", "<answer>B</answer>", "", "!", "?", "12", "1 2", "\U0001f44d", "\U0001f44e", "ß"]
    assert len({digest([text]) for text in others}) == len(others)
    assert digest(["a", "b"]) != digest(["a b"]) != digest(["", "a b"])
    text = "".join(random.Random(0).choices("aB,. \n", k=200))
    assert normalised(normalised(text)) == normalised(text)


def test_rows_of_evaluations_are_known_by_their_groups():
    def hitom(index, **changes):
        return parse_row("hitom", {"index": index, **examples.load("hitom").record(0), **changes})

    def row(index, **changes):
        return RowIdentity.from_row(hitom(index, **changes))

    held_out = HeldOut([hitom(0)], NEAR)
    assert held_out.shared_keys(row(7).keys), "the place in the file tells nothing"
    assert held_out.shared_keys(row(7, question="Where is Ann?").keys), "another question about the story"
    assert not held_out.shared_keys(row(0, story="Ann sat down.").keys)
    assert row(0).record == row(7).record != row(0, question="Where is Ann?").record
    story = examples.load("hitom").record(0)["story"]
    changed = row(0, story=story.upper().replace(".", " !").replace(" MOVED ", " CARRIED ", 1))
    assert held_out.shared_keys(changed.keys) and not HeldOut([hitom(0)], 1.0).shared_keys(changed.keys)
    assert RowIdentity.from_json(json.loads(json.dumps(row(0).to_json()))) == row(0)
