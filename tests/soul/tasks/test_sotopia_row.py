"""A row of Sotopia: schema, who of the two reads what, and what feedback must not give away."""

import re

import pytest

from soul.leaks.redaction import redact
from tests.soul.tasks.sotopia_encounters import (
    LEAKS,
    TASK,
    row_of,
    system,
)


@pytest.mark.parametrize(
    ("background", "about", "secret"),
    [
        ("Leo cooks. Leo's secrets: He has a child.", "Leo cooks.", "He has a child."),
        ("Leo cooks.\nLeo\u2019s secret: A child.\nAnd a dog.", "Leo cooks.", "A child.\nAnd a dog."),
        ("Jess cooks. Jess' secrets: A child.", "Jess cooks.", "A child."),
        ("Secrets: a child", "", "a child"),
        ("Leo cooks and keeps secrets well.", "Leo cooks and keeps secrets well.", ""),
    ],
)
def test_a_secret_in_the_background_becomes_a_field(background, about, secret):
    row = row_of(agent2_background=background)
    assert (row.agent2_background, row.agent2_secret) == (about, secret)


# --- who reads what


@pytest.mark.parametrize(("position", "me"), [("agent1", "Ada Voss"), ("agent2", "Ben Okri")])
def test_each_side_reads_its_own_and_nothing_of_the_other(position, me):
    text = system(eval_position=position)
    own = {"agent1": ("$480", "read music", "beekeeper"), "agent2": ("$455.50", "gambled", "sings bass", "deep sound")}
    other = own["agent2" if position == "agent1" else "agent1"]
    assert text.startswith(f"You are {me}.")
    assert all(part in text for part in own[position]) and not any(part in text for part in other)
    assert "acquaintances" in text and "Ada Voss visits Ben Okri" in text
    assert not re.search(r"Cleo|</?(p|extra_info|strategy_hint)\b|[Aa]gent[12]", text)  # tags, and a note for the judge
    # Left open, the part for the judge has no known end.
    assert "Cleo" not in system(scenario='Two meet. <p viewer="environment">Their friend: Cleo', eval_position=position)


# --- what the partner hides


@pytest.mark.parametrize("leak", LEAKS)
def test_what_the_partner_hides_does_not_reach_the_feedback(leak):
    text, withheld = redact(leak, TASK.secrets(row_of()))
    assert withheld and not re.search(r"455|gambled.away|choir's money|bow may go|cleo", text, re.IGNORECASE), text


@pytest.mark.parametrize(
    "fair",
    [
        "You opened at $480, which is all you have; the price tag says $600.",
        "You said you could not read music: that was yours to keep.",
        "Ask Ben Okri how the cello sounds before you name a sum.",
        "Extra information: you can pay $480 at most.",
    ],
)
def test_what_the_policy_knows_stays_in_the_feedback(fair):
    assert redact(fair, TASK.secrets(row_of())) == (fair, [])
