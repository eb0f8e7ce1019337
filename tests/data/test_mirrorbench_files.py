"""MirrorBench task files: the published conversations as rows, nothing of the real user's words beside the turns."""

import json

import pytest

from data import mirrorbench
from soul.metrics.lexical import lexis
from soul.tasks.mirrorbench import DEVIATION, HUMANS, MirrorBench, MirrorBenchRow
from tests.data.source_files import needs, write_lines
from tests.soul.samples import DATA
from tests.soul.tasks.mirrorbench_talks import human_norms

FILES = sorted((DATA / "mirrorbench").glob("*_mirror.jsonl"))
needs_records = needs(*FILES)

RAW = {
    "dataset": "clariq",
    "conversation_id": "c-1",
    "task_description": "The user wants to hang a hammock.",
    "turns": [
        {"role": "user", "content": "hammock knot", "metadata": {"topic_id": "9"}},
        {"role": "assistant", "content": "A bowline?", "metadata": {}},
        {"role": "user", "content": "yes"},
    ],
    "metadata": {"topic_id": "9", "few_shot_user_examples": [{"utterance": "yes"}]},
}


@needs_records
def test_every_published_conversation_is_a_row_that_the_task_can_play():
    task, records = MirrorBench(), mirrorbench.convert(FILES)
    raws = [json.loads(line) for path in FILES for line in path.read_text(encoding="utf-8").split("\n") if line]
    assert len(records) == len(raws)
    for record, raw in zip(records, raws, strict=True):
        row = MirrorBenchRow.model_validate(record)
        task.check(row)
        assert row.dataset in HUMANS and record["index"] == row.index
        assert row.user_turns == [turn["content"].strip() for turn in raw["turns"] if turn["role"] == "user"]
        prompt = task.prompt(row)
        assert [message["role"] for message in prompt] == ["system", "user"]
        roles = [turn["role"] for turn in row.conversation]
        assert roles[-1] == "user" and all(a != b for a, b in zip(roles, roles[1:], strict=False))
        assert "few_shot" not in json.dumps(record) and "metadata" not in record["turns"]


@needs_records
def test_the_documented_norms_are_those_of_the_published_users():
    """Exactly where all 795 conversations are; a copy with a part of them must come close."""
    rows = [MirrorBenchRow.model_validate(record) for record in mirrorbench.convert(FILES)]
    whole = len(rows) == 795

    def close(found, documented, part):
        return found == pytest.approx(documented, rel=1e-4 if whole else part)

    for dataset, (mean, deviation) in HUMANS.items():
        found = human_norms([lexis(row.user_turns) for row in rows if row.dataset == dataset])
        assert close(found[0], mean, 0.1) and close(found[1], deviation, 0.3)
    assert close(human_norms([lexis(row.user_turns) for row in rows])[1], DEVIATION, 0.05)


def test_a_row_holds_roles_and_texts_alone(tmp_path):
    (record,) = mirrorbench.convert([write_lines(tmp_path / "a_mirror.jsonl", RAW)])
    assert record["task_description"] == record["question"] == RAW["task_description"]
    assert json.loads(record["turns"]) == [{"role": t["role"], "content": t["content"]} for t in RAW["turns"]]
    assert record["group"] == "topic-9" and set(record) == {
        "index",
        "question",
        "task_description",
        "dataset",
        "conversation_id",
        "turns",
        "group",
    }


def test_equal_openings_are_one_group_where_there_is_no_topic(tmp_path):
    others = [
        {**RAW, "conversation_id": f"c-{i}", "metadata": {}, "turns": [{"role": "user", "content": text}]}
        for i, text in enumerate(["Hello", " hello ", "Good day"])
    ]
    groups = [record["group"] for record in mirrorbench.convert([write_lines(tmp_path / "a.jsonl", *others)])]
    assert groups[0] == groups[1] != groups[2]
