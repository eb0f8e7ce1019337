"""Sotopia training files: environments (those of Sotopia-pi), each played by five pairs of characters drawn by seed.

    python -m data.sotopia_pairs convert redis_json_data.json --out data/sim_rl_data/sotopia_clean_rl.parquet
    python -m data.sotopia_pairs convert environments.jsonl agent_profiles.jsonl relationship_profiles.jsonl --out F

Source: huggingface.co/datasets/cmu-lti/sotopia-pi (CC BY-SA 4.0), whose database dump the authors' script
data_generate/utils/convert_db_into_json.py (github.com/sotopia-lab/sotopia-pi) turns into redis_json_data.json. It
holds environments, agents and relationships. The same records are also read from JSON lines; each is recognised by its
fields, and all other records are ignored.

A pair must have the relationship that the environment requires, and meet its constraints on age and occupation, the
first person those of the first goal. The policy plays one of the two, drawn by seed; the paper does
not say which one.
Environments that the evaluation uses are left out by `python -m data.train`, by id, code name and scenario.
"""

import ast
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data.builder_cli import Builder, Rows
from data.reading import read_json, read_json_lines
from data.rows import Record, numbered
from data.sotopia import encounter, on_side, relationship_code
from soul.tasks.sotopia_row import POSITIONS

PAIRS = 5  # of each environment, as in the paper
NO_PAIR = "environments for which no pair of characters meets the constraints"
_NONE = ("", "nan", "none", "null", "[]")  # how the dumps write that there is no constraint
_Person = Mapping[str, Any]


class _Sources(NamedTuple):
    environments: dict[str, dict[str, Any]]
    agents: dict[str, dict[str, Any]]
    pairs: dict[str, list[tuple[str, str]]]  # code of a relationship -> pairs of agents


def convert(paths: Sequence[str | Path], seed: int = 0) -> Rows:
    """Five encounters of each environment as `extra_info` dicts, in the environments' order.

    The pairs of an environment depend on (seed, its id) and the characters, not on the other environments.
    """
    sources = _read(paths)
    records: list[Record] = []
    left_out: Counter[str] = Counter()
    fewer = 0
    for env_id, environment in sources.environments.items():
        if len(environment["agent_goals"]) != 2:
            left_out["environments without two goals"] += 1
            continue
        rng = random.Random(f"sotopia:{seed}:{env_id}")
        fitting = list(_fitting(environment, sources))
        drawn = rng.sample(fitting, min(PAIRS, len(fitting)))
        left_out[NO_PAIR] += not drawn
        fewer += 0 < len(drawn) < PAIRS
        for number, pair in enumerate(drawn):
            record = {"env_id": env_id, "combo_id": f"{env_id}-{number}", **encounter(environment, pair)}
            records.append(on_side(record, rng.choice(POSITIONS)))
    notes = [f"environments with fewer than {PAIRS} pairs: {fewer}"] if fewer else []
    return Rows(numbered(records), +left_out, notes=notes, task="sotopia")


def _read(paths: Sequence[str | Path]) -> _Sources:
    sources = _Sources({}, {}, {})
    for record in (found for path in paths for found in _file(Path(path))):
        if {"agent_goals", "scenario"} <= set(record):
            env_id = str(record.get("env_id") or record.get("pk") or f"{record.get('codename')}: {record['scenario']}")
            sources.environments[env_id] = record
        elif "first_name" in record:
            agent_id = str(record.get("agent_id") or record.get("pk") or "")
            sources.agents[agent_id] = {**record, "agent_id": agent_id}
        elif {"agent1_id", "agent2_id", "relationship"} <= set(record):
            pair = (str(record["agent1_id"]), str(record["agent2_id"]))
            sources.pairs.setdefault(str(record["relationship"]).removesuffix(".0"), []).append(pair)
    for kind, found in zip(("environment", "agent", "relationship"), sources, strict=True):
        if not found:
            names = ", ".join(str(path) for path in paths)
            raise ValueError(f"{names}: there is no {kind}; give environments, agents and relationships together")
    return sources


def _file(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return (record for _, record in read_json_lines(path))
    content = read_json(path)  # of a database dump, by key: ":sotopia.database.persistent_profile.AgentProfile:01H5..."
    records = content.values() if isinstance(content, dict) else content
    return (record for record in records if isinstance(record, dict))


def _fitting(environment: Mapping[str, Any], sources: _Sources) -> Iterator[tuple[_Person, _Person]]:
    """The pairs that may meet in an environment, in either order, each once."""
    ages, occupations = _ages(environment), _occupations(environment)
    known = sources.pairs.get(relationship_code(environment), [])
    either_way = dict.fromkeys(pair for one, other in known for pair in ((one, other), (other, one)))
    chosen: set[frozenset[str]] = set()
    for ids in either_way:
        people = [sources.agents[agent_id] for agent_id in ids if agent_id in sources.agents]
        if len(people) < 2 or frozenset(ids) in chosen:
            continue
        of_age = all(low <= _age(person) <= high for person, (low, high) in zip(people, ages, strict=True))
        jobs = zip(people, occupations, strict=True)
        if of_age and all(not wanted or str(one.get("occupation")).casefold() in wanted for one, wanted in jobs):
            chosen.add(frozenset(ids))
            yield people[0], people[1]


def _age(person: _Person) -> float:
    return float(person.get("age") or 0)


def _ages(environment: Mapping[str, Any]) -> list[tuple[float, float]]:
    """The span of ages of each person: "[(18, 70), (18, 70)]"."""
    value = environment.get("age_constraint")
    if value is None or str(value).strip().casefold() in _NONE:
        return [(0, 200)] * 2
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", str(value))]
    return [(numbers[0], numbers[1]), (numbers[2], numbers[3])]


def _occupations(environment: Mapping[str, Any]) -> list[set[str]]:
    """The occupations that each person may have, in lower case; empty: any. "[actor, actor]", "[['nurse'], []]"."""
    value = environment.get("occupation_constraint")
    if value is None or str(value).strip().casefold() in _NONE:
        return [set(), set()]
    try:
        parts = ast.literal_eval(str(value))  # never run as code
    except (ValueError, SyntaxError):
        parts = str(value).strip("[] ").split(",")
    wanted = [part if isinstance(part, list | tuple) else [part] for part in parts]
    names = [{str(name).strip(" '\"").casefold() for name in part} for part in wanted]
    return [part - set(_NONE) for part in names]


BUILDER = Builder(
    "data.sotopia_pairs",
    __doc__,
    lambda args: convert(args.sources, args.seed),
    sources="SRC",
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
