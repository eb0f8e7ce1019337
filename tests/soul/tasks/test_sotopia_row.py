"""A row of Sotopia: schema, who of the two reads what, and what feedback must not give away."""

import json
import re

import pytest

from data import sotopia as builder
from soul.leaks.redaction import redact
from soul.tasks.sotopia_row import RELATIONSHIPS, SotopiaRow
from tests.soul.samples import DATA
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


@pytest.mark.parametrize("code", [3, "3", 3.0, "3.0"])
def test_a_relationship_may_be_a_code(code):
    assert row_of(relationship=code).relationship == RELATIONSHIPS[3] == "friends"
    assert row_of(relationship="old rivals").relationship == "old rivals"


# --- who reads what


@pytest.mark.parametrize(("position", "me"), [("agent1", "Ada Voss"), ("agent2", "Ben Okri")])
def test_each_side_reads_its_own_and_nothing_of_the_other(position, me):
    text = system(eval_position=position)
    own = {"agent1": ("$480", "read music", "beekeeper"), "agent2": ("$455.50", "gambled", "sings bass", "deep sound")}
    other = own["agent2" if position == "agent1" else "agent1"]
    assert text.startswith(f"You are {me}.")
    assert all(part in text for part in own[position]) and not any(part in text for part in other)
    assert "acquaintances" in text and "Ada Voss visits Ben Okri" in text


@pytest.mark.parametrize("position", ["agent1", "agent2"])
def test_tags_and_what_is_for_the_judge_stay_out_of_the_prompt(position):
    text = system(eval_position=position)
    assert "Cleo" not in text and not re.search(r"</?(p|extra_info|strategy_hint)\b|[Aa]gent[12]", text)
    # Left open, the part for the judge has no known end.
    assert "Cleo" not in system(scenario='Two meet. <p viewer="environment">Their friend: Cleo')


def test_a_part_for_one_of_the_two_reaches_that_one():
    scenario = 'Two meet. <p viewer="agent_0">It rains.</p><p viewer="agent_1">It is late.</p>'
    assert "It rains." in system(scenario=scenario) and "It is late." not in system(scenario=scenario)
    assert "It is late." in system(scenario=scenario, eval_position="agent2")


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


# --- real records


def test_real_records():
    if not (DATA / "sotopia").exists():
        pytest.skip(f"real records are absent: {DATA / 'sotopia'} (SOUL_DATA_SOURCES)")
    records = builder.convert([DATA / "sotopia"]).records
    assert len(records) >= 300
    shared = 0
    for record in records[::5]:  # all combinations of a few environments, and both positions: 5 is odd
        row = SotopiaRow.model_validate(record)
        TASK.check(row)
        prompt = json.dumps(TASK.prompt(row), ensure_ascii=False)
        assert not re.search(r"\bNone\b|viewer=|_info>|_hint>", prompt), prompt
        partner = row.partner_position
        for text in (row.of(partner, "secret"), row.of(partner, "background")):
            assert text and text not in prompt
        assert row.of(row.eval_position, "secret") in prompt
        for note in row.notes:  # the friend whom both know
            shared += 1
            assert note not in prompt and "friend" in note
        secrets = TASK.secrets(row)
        for text in (row.of(partner, "secret"), *row.notes):
            assert redact(text, secrets)[0].strip(" .") == "[withheld]"
        if "target price" in row.of(partner, "goal"):
            (price,) = re.findall(r"\$\d+(?:\.\d+)?", row.of(partner, "goal"))
            assert "$" not in redact(f"The other would sell at {price}", secrets)[0]
        assert redact(row.of(row.eval_position, "goal"), secrets)[0].count("withheld") <= 1 or row.notes
    assert shared
