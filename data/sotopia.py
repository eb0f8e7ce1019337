"""Sotopia task files: environments, agents and the pairs that may meet, one row for each encounter and side.

    python -m data.sotopia convert SOURCES --hard --out data/sim_eval_data/sotopia_hard_val.parquet

SOURCES are files, or folders and clones that hold them: environment_profiles.jsonl, agent_profiles.jsonl,
relationship_profiles.jsonl and env_agent_combo_storages.jsonl (github.com/sotopia-lab/sotopia-space, Apache-2.0; the
data are CC BY-SA 4.0: name the source, share alike), and for --hard env_ids.json
(github.com/sotopia-lab/sotopia-pi, Apache-2.0) with the hard environments.

Goals and scenarios keep their tags: the task decides who may read the tagged parts. The stories of
relationship_profiles.jsonl are left out: some reveal the secrets of both agents, some are about other people.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows, argument
from data.reading import read_json, read_json_lines
from data.rows import Record
from soul.tasks.sotopia_row import POSITIONS, RELATIONSHIPS, Position, SotopiaRow


def convert(paths: Sequence[str | Path], hard_only: bool = False) -> Rows:
    """The encounters of these files and folders as `extra_info` dicts, two for each combination: a row for each side.

    Args:
        hard_only: leave out all but the hard environments.
    """
    sources = list(map(Path, paths))
    environments = _by_id(_file(sources, "environment_profiles.jsonl"), "env_id")
    agents = _by_id(_file(sources, "agent_profiles.jsonl"), "agent_id")
    relationships = _relationships(_file(sources, "relationship_profiles.jsonl"))
    hard = _hard(_file(sources, "env_ids.json")) if hard_only else set()
    path = _file(sources, "env_agent_combo_storages.jsonl")
    records: list[Record] = []
    left_out: Counter[str] = Counter()
    for where, combo in read_json_lines(path):
        environment = _known(where, "env_id", combo.get("env_id"), environments)
        if hard_only and combo["env_id"] not in hard:
            left_out["the environment is not one of the hard ones"] += len(POSITIONS)
            continue
        fields = _encounter(where, combo, environment, agents, relationships)
        records += [{"index": len(records) + n, **on_side(fields, side)} for n, side in enumerate(POSITIONS)]
    return Rows(records, left_out)


def on_side(fields: Record, position: Position) -> Record:
    """An encounter in which the policy plays this side."""
    record = {**fields, "eval_position": position}
    row = SotopiaRow.model_validate({"index": 0, **record})
    # The column `prompt` is for people who browse the file: it must not show what only the judge may read.
    return {**record, "question": row.shown(row.scenario, position)}


def _file(sources: Sequence[Path], name: str) -> Path:
    """The file of this name among the sources, or below them."""
    found = [path for path in sources if path.name == name and path.is_file()]
    found = found or [path for folder in sources for path in sorted(folder.rglob(name))]
    if len(found) != 1:
        places = ", ".join(map(str, found or sources))
        raise ValueError(f"{places}: {'more than one' if found else 'no'} file {name}; pass the path of the file")
    return found[0]


def _encounter(
    where: str,
    combo: Mapping[str, Any],
    environment: Mapping[str, Any],
    agents: Mapping[str, Mapping[str, Any]],
    relationships: Mapping[frozenset[str], set[str]],
) -> Record:
    """The fields that the two rows of a combination share."""
    ids = combo.get("agent_ids")
    if not (isinstance(ids, list) and len(ids) == 2 and ids[0] != ids[1]):
        raise ValueError(f"{where}: field 'agent_ids' must name two agents, got {ids!r:.100}")
    pair = [_known(where, "agent_ids", agent_id, agents) for agent_id in ids]
    code = relationship_code(where, environment)
    if code not in relationships.get(frozenset(ids), set()):
        raise ValueError(
            f"{where}: field 'agent_ids' names two agents who are not {RELATIONSHIPS[int(code)]!r}, which "
            f"environment {combo['env_id']} requires; take combinations and relationships from the same release"
        )
    record: Record = {"env_id": combo["env_id"], "combo_id": str(combo.get("combo_id", ""))}
    return record | encounter(where, environment, pair)


def relationship_code(where: str, environment: Mapping[str, Any]) -> str:
    """The relationship that an environment requires."""
    code = str(environment.get("relationship")).removesuffix(".0")  # pandas writes 3 as 3.0 where a column has gaps
    if not (code.isdecimal() and int(code) < len(RELATIONSHIPS)):
        raise ValueError(
            f"{where}: field 'relationship' of environment {_id(environment)} must be a code from 0 to "
            f"{len(RELATIONSHIPS) - 1}, got {code!r}"
        )
    return code


def _id(environment: Mapping[str, Any]) -> str:
    return str(environment.get("env_id") or environment.get("pk") or environment.get("codename"))


def encounter(where: str, environment: Mapping[str, Any], pair: Sequence[Mapping[str, Any]]) -> Record:
    """Return what a row says about an environment and the two people who meet in it."""
    goals = environment.get("agent_goals")
    if not (isinstance(goals, list) and len(goals) == 2 and all(isinstance(g, str) and g.strip() for g in goals)):
        raise ValueError(f"{where}: field 'agent_goals' of environment {_id(environment)} must hold two texts")
    if not str(environment.get("scenario") or "").strip():
        raise ValueError(f"{where}: field 'scenario' of environment {_id(environment)} is missing or empty")
    relationship = RELATIONSHIPS[int(relationship_code(where, environment))]
    record: Record = {"codename": str(environment.get("codename", "")), "source": str(environment.get("source", ""))}
    record |= {"scenario": _unescaped(str(environment["scenario"])), "relationship": relationship}
    for position, agent, goal in zip(POSITIONS, pair, goals, strict=True):
        record |= {f"{position}_{field}": value for field, value in _person(where, agent).items()}
        record[f"{position}_goal"] = _unescaped(goal)
    return record


def _person(where: str, agent: Mapping[str, Any]) -> Record:
    """Name, background (in the form in which Sotopia shows it to the agent) and secret."""
    fields = ("first_name", "last_name", "age", "gender", "gender_pronoun", "occupation")
    if missing := [field for field in fields if not str(agent.get(field) or "").strip()]:
        raise ValueError(f"{where}: field '{missing[0]}' of agent {agent['agent_id']} is missing or empty")
    name = f"{agent['first_name']} {agent['last_name']}".strip()
    about = f"{name}, {agent['age']}, {agent['gender'].lower()} ({agent['gender_pronoun'].lower()})"
    texts = [f"{about}, {agent['occupation'].lower()}.", agent.get("public_info"), agent.get("personality_and_values")]
    return {
        "name": name,
        "background": " ".join(str(text).strip() for text in texts if text),
        "secret": str(agent.get("secret") or "").strip(),
    }


def _unescaped(text: str) -> str:
    """Some texts were written as string literals: "Here\\'s"."""
    return text.replace("\\'", "'").replace('\\"', '"')


def _by_id(path: Path, key: str) -> dict[str, dict[str, Any]]:
    records: dict[str, dict[str, Any]] = {}
    for where, record in read_json_lines(path):
        name = record.get(key)
        if not isinstance(name, str) or not name or name in records:
            raise ValueError(f"{where}: field '{key}' must be a unique id, got {name!r}")
        records[name] = record
    return records


def _relationships(path: Path) -> dict[frozenset[str], set[str]]:
    """Pair of agents -> codes of their relationship; the source has two codes for a few pairs."""
    codes: dict[frozenset[str], set[str]] = {}
    for _, record in read_json_lines(path):
        pair = frozenset((str(record.get("agent1_id")), str(record.get("agent2_id"))))
        codes.setdefault(pair, set()).add(str(record.get("relationship")))
    return codes


def _hard(path: Path) -> set[str]:
    content = read_json(path)
    ids = content.get("sotopia_hard_env_id") if isinstance(content, dict) else None
    if not (isinstance(ids, list) and ids and all(isinstance(name, str) for name in ids)):
        raise ValueError(f"{path}: field 'sotopia_hard_env_id' must be a list of ids")
    return set(ids)


def _known(where: str, field: str, name: Any, known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if name not in known:
        raise ValueError(f"{where}: field '{field}' names {name!r}, which has no profile in this folder")
    return known[name]


BUILDER = Builder(
    "data.sotopia",
    __doc__,
    lambda args: convert(args.sources, args.hard),
    # Variants of one situation (the same scene about other goods) share a codename: they stay on one side of a split.
    group="codename",
    groups="situations",
    sources="SRC",
    options=[argument("--hard", action="store_true", help="Sotopia-hard alone")],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
