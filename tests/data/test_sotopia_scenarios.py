"""Generated Sotopia environments: their goals conflict as stated, and the goals' texts say the same numbers."""

import json
import re

import pytest

from data import sotopia_pairs, sotopia_scenarios
from soul.rows.task_files import read_rows
from tests.data.source_files import needs, write_lines
from tests.soul.samples import DATA

FOLDER = DATA / "sotopia"


def test_goals_conflict_by_construction():
    environments = sotopia_scenarios.generate(300)
    assert len({one["env_id"] for one in environments}) == len({one["codename"] for one in environments}) == 300
    for one in environments:
        conflict, goals = one["conflict"], one["agent_goals"]
        if "seller" in conflict:
            (worst, high), (low, most) = conflict["seller"], conflict["buyer"]
            assert low < worst < most < high, one  # a deal is possible, and neither target is
            assert [int(n) for n in re.findall(r"\$(\d+)", goals[0])] == [high, worst]
            assert [int(n) for n in re.findall(r"\$(\d+)", goals[1])] == [low, most]
        elif "points" in conflict:
            assert all(points == sorted(set(points), reverse=True) for points in conflict["points"])
            assert [[int(n) for n in re.findall(r"(\d+) points", goal)] for goal in goals] == conflict["points"]
        else:
            first, other = conflict["orders"]
            assert first == other[::-1] and all(plan in one["scenario"] for plan in first)
            assert all(
                goal.index(order[0]) < goal.index(order[2]) for goal, order in zip(goals, (first, other), strict=True)
            )


def test_the_first_environments_stay_and_a_seed_changes_them():
    assert sotopia_scenarios.generate(60)[:20] == sotopia_scenarios.generate(20)
    assert sotopia_scenarios.generate(20, seed=1)[0]["scenario"] != sotopia_scenarios.generate(20)[0]["scenario"]
    with pytest.raises(ValueError, match="different environments"):
        sotopia_scenarios.generate(20_000, kinds=["evening"])


@needs(FOLDER)
def test_the_environments_are_played_by_sotopias_characters(tmp_path):
    assert sotopia_scenarios.main(["--count", "30", "--out", str(tmp_path / "environments.jsonl")]) == 0
    sources = [
        tmp_path / "environments.jsonl",
        *(FOLDER / f"{kind}_profiles.jsonl" for kind in ("agent", "relationship")),
    ]
    out = tmp_path / "out.parquet"
    built = sotopia_pairs.build(["convert", *map(str, sources), "--out", str(out)])
    assert built.rows == 150 and len(read_rows([str(out)])) == 150
    lines = [json.loads(line) for line in (tmp_path / "environments.jsonl").read_text().splitlines()]
    write_lines(tmp_path / "again.jsonl", *lines)
    for row in read_rows([str(out)]):  # neither side sees what the other may do at most
        prompt = "".join(message["content"] for message in row.task.prompt(row.row))
        other = row.row.agent2_goal if row.row.eval_position == "agent1" else row.row.agent1_goal
        hidden = re.search(r"<extra_info>(.*?)</extra_info>", other)
        assert hidden and hidden[1] not in prompt
