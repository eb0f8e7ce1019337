"""Sotopia-hard task files: environments, agents and the pairs that may meet, one row for each encounter and side.

    python -m data.sotopia convert SOURCES --out data/sim_eval_data/sotopia_hard_val.parquet

SOURCES are files, or folders and clones that hold them: environment_profiles.jsonl, agent_profiles.jsonl and
env_agent_combo_storages.jsonl (github.com/sotopia-lab/sotopia-space, Apache-2.0; the data are CC BY-SA 4.0: name the
source, share alike), and env_ids.json (github.com/sotopia-lab/sotopia-pi, Apache-2.0), which names the hard
environments: the others are left out.

Goals and scenarios keep their tags: the task decides who may read the tagged parts. The stories of
relationship_profiles.jsonl are not read: some reveal the secrets of both agents, some are about other people.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows
from data.reading import read_json, read_json_lines
from data.rows import Record, numbered
from soul.tasks.sotopia_row import POSITIONS, RELATIONSHIPS, Position, SotopiaRow


def convert(paths: Sequence[str | Path]) -> Rows:
    """The hard encounters of these files and folders as `extra_info` dicts, a row for each side of a combination."""
    sources = list(map(Path, paths))
    environments = {one["env_id"]: one for _, one in read_json_lines(_file(sources, "environment_profiles.jsonl"))}
    agents = {one["agent_id"]: one for _, one in read_json_lines(_file(sources, "agent_profiles.jsonl"))}
    hard = read_json(_file(sources, "env_ids.json"))["sotopia_hard_env_id"]
    records: list[Record] = []
    left_out: Counter[str] = Counter()
    for _, combo in read_json_lines(_file(sources, "env_agent_combo_storages.jsonl")):
        env_id, pair = combo["env_id"], [agents[agent_id] for agent_id in combo["agent_ids"]]
        if env_id not in hard:
            left_out["the environment is not one of the hard ones"] += len(POSITIONS)
            continue
        fields = {"env_id": env_id, "combo_id": str(combo.get("combo_id", "")), **encounter(environments[env_id], pair)}
        records += [on_side(fields, side) for side in POSITIONS]
    return Rows(numbered(records), left_out)


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


def relationship_code(environment: Mapping[str, Any]) -> str:
    """The relationship that an environment requires; pandas writes 3 as 3.0 where a column has gaps."""
    return str(environment["relationship"]).removesuffix(".0")


def encounter(environment: Mapping[str, Any], pair: Sequence[Mapping[str, Any]]) -> Record:
    """Return what a row says about an environment and the two people who meet in it."""
    relationship = RELATIONSHIPS[int(relationship_code(environment))]
    record: Record = {"codename": str(environment.get("codename", "")), "source": str(environment.get("source", ""))}
    record |= {"scenario": _unescaped(environment["scenario"]), "relationship": relationship}
    for position, agent, goal in zip(POSITIONS, pair, environment["agent_goals"], strict=True):
        record |= {f"{position}_{field}": value for field, value in _person(agent).items()}
        record[f"{position}_goal"] = _unescaped(goal)
    return record


def _person(agent: Mapping[str, Any]) -> Record:
    """Name, background (in the form in which Sotopia shows it to the agent) and secret."""
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


BUILDER = Builder(
    "data.sotopia",
    __doc__,
    lambda args: convert(args.sources),
    sources="SRC",
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
