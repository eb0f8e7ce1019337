"""The converters of BehaviorChain, SocSci210 and HumanLLM, on invented records in the documented forms.

BehaviorChain's data are withheld, SocSci210's are on a hub that is out of reach here, and HumanLLM's are not public.
"""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import behavior_chain, humanllm, sets, socsci210
from soul import examples
from soul.rows.task_files import read_rows
from soul.suites import soul_v1
from tests.data.source_files import refusal, write_json, write_lines


def link(number: int, **fields: object) -> dict[str, object]:
    others = [{"trait": "t", "behavior": f"does {name} {number}"} for name in ("this", "that", "nothing")]
    text = f"Scene {number}. After this or in response to this, what behavior did Ida take?"
    return {"summary_refined": text, "key_behavior": f"runs {number}", "disturbance": [*others, "x", "y"], **fields}


def book(*links: dict[str, object], **fields: object) -> dict[str, object]:
    chapters = [{"chapter_num": str(n), "chapter_content": f"Home Summary Chapter {n}."} for n in range(1, 6)]
    about = {"title": "Ponds", "profile": {"Name": "Ida", "Job": "Cook"}, "summary": chapters, "max_index": 3}
    return {**about, "chapters_len": 6, "summary_len": 5, "examples": list(links), **fields}


def test_a_chain_gives_a_row_for_each_link_after_the_first(tmp_path):
    shuffled = {"a": "does this 1", "b": "runs 1", "c": "does that 1", "d": "does nothing 1"}
    links = [link(0), link(1, options_out_of_order=shuffled), link(2), link(3, disturbance=[]), link(4)]
    path, out = write_json(tmp_path / "finally_examples_Ponds.json", book(*links)), tmp_path / "out.parquet"
    built = behavior_chain.build(["convert", str(path), "--out", str(out)])
    assert built.left_out == {behavior_chain.NO_OPTIONS: 1}
    rows = read_rows([str(out)])
    assert [row.row.current_context for row in rows] == ["Scene 1.", "Scene 2.", "Scene 4."]
    assert [row.task.options(row.row)[row.task.gold(row.row)] for row in rows] == ["runs 1", "runs 2", "runs 4"]
    assert [row.row.earlier_scenes for row in rows] == [1, 2, 4]
    assert [(row.row.chain, row.row.link, row.row.chain_links) for row in rows] == [
        ("finally_examples_Ponds", place, 3) for place in (1, 2, 4)
    ]
    assert "Chapter 2." in rows[0].row.history and "Chapter 3." not in rows[0].row.history
    assert "Home" not in rows[0].row.history and "Cook" in rows[0].row.profile


def answers(study: str, task: str, values: list[object], prompt: str = "How likely are you to vote?") -> list[dict]:
    about = {"study_id": study, "condition_num": 1, "task_num": task, "prompt": prompt}
    return [{**about, "response": value} for value in values]


SOCSCI = [
    *answers("s1", "1", [2, 5, "3"]),
    *answers("s1", "2", [1, 0, 1]),
    *answers("s2", "1", [2, 3, "none"], "Rate it from 1 = bad to 7 = good."),
    *answers("s2", "2", [4, 4]),
]


def test_scales_come_from_the_prompt_and_from_all_answers(tmp_path):
    mapping = write_json(tmp_path / "participant_mapping.json", {"unseen": ["s2"]})
    lines = write_lines(tmp_path / "answers.jsonl", *SOCSCI)
    table = tmp_path / "answers.parquet"
    pq.write_table(pa.Table.from_pylist([{**one, "response": str(one["response"])} for one in SOCSCI]), table)
    for source in (lines, table):
        rows = socsci210.convert([source, mapping])
        found = [(r["study_id"], r["response"], r["response_type"], r["r_min"], r["r_max"]) for r in rows.records]
        first = [("s1", value, "ordinal", 2, 5) for value in (2, 5, 3)]
        second = [("s1", value, "binary", 0, 1) for value in (1, 0, 1)]
        assert found == [*first, *second, *(("s2", value, "ordinal", 1, 7) for value in (2, 3))]
        assert rows.left_out == {socsci210.NO_NUMBER: 1, socsci210.ONE_ANSWER: 2}
    unseen = socsci210.convert([lines, mapping], "unseen")
    assert {r["study_id"] for r in unseen.records} == {"s2"}
    assert {r["study_id"] for r in socsci210.convert([lines, mapping], "seen").records} == {"s1"}
    out = tmp_path / "out.parquet"
    socsci210.build(["convert", str(lines), "--out", str(out)])
    assert len(read_rows([str(out)])) == 8


def test_a_draw_is_seeded_and_fair(tmp_path):
    path = write_lines(tmp_path / "answers.jsonl", *answers("s1", "1", [n % 9 for n in range(200)]))
    draws = [tuple(r["response"] for r in socsci210.convert([path], rows=50, seed=seed).records) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2] and len(draws[0]) == 50
    assert len(Counter(draws[0])) == 9


def test_answers_are_drawn_by_question_so_that_distributions_can_be_compared(tmp_path):
    two, few = answers("s2", "1", list(range(30))), answers("s1", "2", [1, 2] * 5)
    path = write_lines(
        tmp_path / "a.jsonl", *answers("s1", "1", list(range(40))), *two, *few, *answers("s3", "1", [4] * 50)
    )
    rows = socsci210.convert([path], rows=45, per_question=20).records
    asked = Counter((row["study_id"], row["condition_num"], row["task_num"]) for row in rows)
    assert set(asked.values()) == {20} and set(asked) == {("s1", "1", "1"), ("s2", "1", "1")}
    assert len({row["response"] for row in rows if row["study_id"] == "s1"}) == 20
    (only,) = {row["study_id"] for row in socsci210.convert([path], rows=39, per_question=20).records}
    assert only in ("s1", "s2")


@pytest.mark.parametrize("seed", range(8))
def test_a_draw_has_as_many_rows_as_were_asked_for(tmp_path, seed):
    path = write_lines(tmp_path / "answers.jsonl", *answers("s1", "1", [n % 9 for n in range(2000)]))
    assert len(socsci210.convert([path], rows=20, seed=seed).records) == 20


def test_an_answer_that_is_no_finite_number_is_left_out_and_spoils_no_scale(tmp_path):
    path = write_lines(tmp_path / "answers.jsonl", *answers("s1", "1", [float("nan"), 1, 5]))
    built = socsci210.convert([path])
    assert [record["response"] for record in built.records] == [1.0, 5.0]
    assert sum(built.left_out.values()) == 1


def test_item_selection_keeps_the_items_and_the_one_that_was_picked(tmp_path):
    example = examples.load("humanllm")
    path, out = write_lines(tmp_path / "item_selection.jsonl", *(example.record(n) for n in range(4))), tmp_path / "o"
    humanllm.build(["convert", str(path), "--out", str(out)])
    for number, row in enumerate(read_rows([str(out)])):
        assert row.task.target(row.row).endswith(example.record(number)["answer_text"])


@pytest.mark.parametrize(
    ("builder", "records", "message"),
    [
        (humanllm, [{"prompt_text": "A user.", "candidates": ["a", "b"], "answer_text": "c"}], "line 1"),
        (socsci210, [{"study_id": "s", "task_num": 1, "prompt": "p"}], "field 'response' is missing"),
    ],
)
def test_what_is_wrong_is_named(builder, records, message, tmp_path, capsys):
    path = write_lines(tmp_path / "a.jsonl", *records)
    assert message in refusal(builder, capsys, path, "--out", tmp_path / "out.parquet")


def test_every_evaluation_set_has_a_builder(tmp_path: Path):
    assert set(sets.BUILDS) >= set(soul_v1.SETS)
    folder = tmp_path / "behaviorchain"
    write_json(folder / "finally_examples_Ponds.json", book(link(0), link(1)))
    out = tmp_path / "out.parquet"
    assert sets.build_set("behaviorchain", tmp_path, out).state == "built"
    assert json.loads(pq.read_table(out).to_pylist()[0]["extra_info"]["raw"])["persona_name"] == "Ida"
