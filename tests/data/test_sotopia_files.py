"""Sotopia task files: both sides of an encounter, pairs that may meet, hard environments alone."""

import json

from data import sotopia

AGENT = {
    "first_name": "Leo",
    "last_name": "Ray",
    "age": 40,
    "gender": "Man",
    "gender_pronoun": "He/him",
    "occupation": "Baker",
    "public_info": "Leo Ray bakes at night. ",
    "personality_and_values": "He is shy.",
    "secret": "He uses bought dough.",
}
AGENTS = [
    {**AGENT, "agent_id": "a1"},
    {**AGENT, "agent_id": "a2", "first_name": "Ida", "gender": "Woman", "gender_pronoun": "She/her", "secret": ""},
    {**AGENT, "agent_id": "a3", "first_name": "Max"},
]
ENVIRONMENTS = [
    {
        "env_id": "e1",
        "codename": "rent",
        "source": "x",
        "scenario": 'Agent1 meets Agent2. <p viewer="environment">Both know Kim.</p> It\\\'s late.',
        "agent_goals": ["Pay less", "Get <extra_info>it\\'s $300</extra_info>"],
        "relationship": "3",
    },
    {
        "env_id": "e2",
        "codename": "dog",
        "source": "y",
        "scenario": "A dog barks.",
        "agent_goals": ["Sleep", "Sing"],
        "relationship": "0",
    },
]
COMBOS = [
    {"combo_id": "c1", "env_id": "e1", "agent_ids": ["a1", "a2"]},
    {"combo_id": "c2", "env_id": "e2", "agent_ids": ["a3", "a1"]},
]


def folder_of(path, hard=("e1", "e2")):
    files = {"environment_profiles": ENVIRONMENTS, "agent_profiles": AGENTS, "env_agent_combo_storages": COMBOS}
    for name, records in files.items():
        (path / f"{name}.jsonl").write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
    (path / "env_ids.json").write_text(json.dumps({"sotopia_hard_env_id": list(hard)}))
    return path


def test_a_combination_gives_a_row_for_each_side(tmp_path):
    records = sotopia.convert([folder_of(tmp_path)]).records
    assert [(r["combo_id"], r["eval_position"]) for r in records] == [
        ("c1", "agent1"),
        ("c1", "agent2"),
        ("c2", "agent1"),
        ("c2", "agent2"),
    ]
    first = records[0]
    assert first["agent1_name"] == "Leo Ray" and first["agent2_name"] == "Ida Ray"
    assert first["agent1_background"] == "Leo Ray, 40, man (he/him), baker. Leo Ray bakes at night. He is shy."
    assert first["agent1_secret"] == "He uses bought dough." and first["agent2_secret"] == ""
    assert first["agent1_goal"] == "Pay less" and first["agent2_goal"] == "Get <extra_info>it's $300</extra_info>"
    assert first["relationship"] == "friends" and records[2]["relationship"] == "strangers"
    assert records[2]["agent1_name"] == "Max Ray" and records[2]["agent2_name"] == "Leo Ray"


def test_the_column_for_people_does_not_tell_what_the_judge_alone_may_read(tmp_path):
    records = sotopia.convert([folder_of(tmp_path)]).records
    assert records[0]["question"] == "Leo Ray meets Ida Ray. It's late."
    assert "Kim" in records[0]["scenario"]


def test_hard_environments_are_kept_alone(tmp_path):
    records = sotopia.convert([folder_of(tmp_path, hard=("e2",))]).records
    assert [(r["env_id"], r["index"]) for r in records] == [("e2", 0), ("e2", 1)]
