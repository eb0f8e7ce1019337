"""Sotopia's training pairs: every pair meets its environment's constraints, from each form of the source."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from data import sotopia_pairs
from data.reading import read_json_lines
from soul.tasks.sotopia_row import RELATIONSHIPS, SotopiaRow
from tests.data.source_files import needs, write_json, write_lines
from tests.soul.samples import DATA

FOLDER = DATA / "sotopia"
FILES = [FOLDER / f"{name}_profiles.jsonl" for name in ("environment", "agent", "relationship")]


def person(name: str, age: int, occupation: str) -> dict[str, object]:
    about = {"first_name": name, "last_name": "Hill", "gender": "Woman", "gender_pronoun": "She/her", "secret": "None"}
    return {"agent_id": name, **about, "age": age, "occupation": occupation, "public_info": "", "big_five": ""}


PEOPLE = [person("Ida", 20, "Actor"), person("Ann", 40, "Nurse"), person("Eva", 60, "Actor"), person("Una", 30, "Cook")]
PAIRS = [
    {"agent1_id": one, "agent2_id": other, "relationship": "3", "background_story": ""}
    for one, other in (("Ida", "Ann"), ("Ann", "Eva"), ("Eva", "Una"), ("Una", "Ida"))
] + [{"agent1_id": "Ida", "agent2_id": "Eva", "relationship": "0", "background_story": ""}]


def environment(**fields: object) -> dict[str, object]:
    record = {"env_id": "e1", "codename": "tea", "scenario": "Two friends drink tea.", "relationship": "3"}
    return {
        **record,
        "agent_goals": ["Talk.", "Leave."],
        "age_constraint": "nan",
        "occupation_constraint": "nan",
        **fields,
    }


def met(tmp_path: Path, **fields: object) -> set[frozenset[str]]:
    records = [environment(**fields), *PEOPLE, *PAIRS]
    rows = sotopia_pairs.convert([write_lines(tmp_path / "all.jsonl", *records)]).records
    return {frozenset((r["agent1_name"].split()[0], r["agent2_name"].split()[0])) for r in rows}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["Ida Ann", "Ann Eva", "Eva Una", "Una Ida"]),
        ({"relationship": 0}, ["Ida Eva"]),
        ({"age_constraint": "[(50, 70), (18, 70)]"}, ["Ann Eva", "Eva Una"]),
        ({"age_constraint": [[50, 70], [18, 35]]}, ["Eva Una"]),
        ({"occupation_constraint": "[actor, nurse]"}, ["Ida Ann", "Ann Eva"]),
        ({"occupation_constraint": "[['Actor'], []]"}, ["Ida Ann", "Ann Eva", "Eva Una", "Una Ida"]),
        ({"occupation_constraint": "[actor, actor]"}, []),
        ({"age_constraint": "[(50, 70), (18, 70)]", "occupation_constraint": "[actor, cook]"}, ["Eva Una"]),
    ],
)
def test_pairs_meet_relationship_ages_and_occupations(fields, expected, tmp_path):
    assert met(tmp_path, **fields) == {frozenset(pair.split()) for pair in expected}


def test_a_database_dump_gives_the_same_rows_as_lines(tmp_path):
    lines = [write_lines(tmp_path / "all.jsonl", environment(), *PEOPLE, *PAIRS)]
    dump = {}
    for number, record in enumerate((environment(), *PEOPLE, *PAIRS)):
        key = str(record.get("env_id") or record.get("agent_id") or number)
        without = {name: value for name, value in record.items() if name not in ("env_id", "agent_id")}
        dump[f":sotopia.database.persistent_profile.Profile:{key}"] = {"pk": key, **without}
    first, other = (
        sotopia_pairs.convert(form, seed=3).records
        for form in (lines, [write_json(tmp_path / "redis_json_data.json", dump)])
    )
    assert len(first) == 4 and other == first != sotopia_pairs.convert(lines, seed=4).records


@needs(FOLDER)
def test_the_published_environments_get_five_pairs_each():
    rows = sotopia_pairs.convert(FILES)
    environments = {record["env_id"]: record for _, record in read_json_lines(FILES[0])}
    people = {f"{r['first_name']} {r['last_name']}".strip(): r for _, r in read_json_lines(FILES[1])}
    counts = Counter(record["env_id"] for record in rows.records)
    assert set(counts.values()) == {5} and len(counts) == len(environments) - 1
    assert rows.left_out == {sotopia_pairs.NO_PAIR: 1}  # it asks for two actors who are friends
    assert {record["eval_position"] for record in rows.records} == {"agent1", "agent2"}
    for record in rows.records:
        SotopiaRow.model_validate(record)
        required = environments[record["env_id"]]
        assert record["relationship"] == RELATIONSHIPS[int(required["relationship"])]
        for position, (low, high) in zip(
            ("agent1", "agent2"), ast.literal_eval(required["age_constraint"]), strict=True
        ):
            assert low <= people[record[f"{position}_name"]]["age"] <= high
    pairs = {(r["env_id"], frozenset((r["agent1_name"], r["agent2_name"]))) for r in rows.records}
    assert len(pairs) == len(rows.records)
