"""SimulatorArena task files: one problem a conversation, the person's own words, no texts that may not be passed on."""

import json

import pyarrow.parquet as pq
import pytest

from data import sim_arena
from soul.tasks.sim_arena import SimArenaDoc, SimArenaMath
from tests.data.source_files import write_json
from tests.soul.samples import DATA

TASKS = {"math": SimArenaMath(), "doc": SimArenaDoc()}

CHAT = {
    "user_queries": ["where do i start", "ok 13", "and the second one?"],
    "ai_responses": ["Try small primes.", None, "Now this."],
    "workerId": "w1",
    "model": "gpt-4o",
}
MATH = {
    **CHAT,
    "user_id": "u1",
    "problem_id": 5,
    "problem_1_turns": 2,
    "math_expertise": "9-12",
    "why_ask_tutor": "I am stuck",
    "type": "Algebra",
    "level": "Level 2",
    "question_location": "test/algebra/1.json",
}
DOC = {**CHAT, "document_type": "email", "intent": "Apology: say sorry."}
CONCEPTS = {"5": {"extracted_concepts": [{"Concept Name": "Primes", "Concept Explanation": "221 = 13 * 17"}]}}
KNOWN = {
    "concepts": [{"Concept Name": "Primes", "Status": "Struggling"}, {"Concept Name": "X", "Status": "Not introduced"}]
}
HEDGING = [{"Feature Name": "Hedging", "Feature Question": "Sure?", "Feature Question Answer": "Hardly ever."}]
TONE = [{"Preference Name": "Tone", "Preference Question": "Warm?", "Preference Question Answer": "Warm."}]


@pytest.fixture
def repository(tmp_path):
    """The layout of the repository's data folder."""
    write_json(tmp_path / "math_tutoring_annotations_redacted.json", [MATH])
    write_json(tmp_path / "math_tutoring_problems_extracted_concepts.json", CONCEPTS)
    write_json(tmp_path / "document_creation_annotations.json", [DOC])
    notes = {"gpt-4o_w1_email_Apology: say sorry.": [{"question": "To whom?", "answer": "Susan"}]}
    write_json(tmp_path / "document_creation_user_simulator_background.json", notes)
    profiles = tmp_path / "user_simulator_profiles"
    write_json(profiles / "math_tutoring" / "knowledge_state.json", {"(5, 'w1', 'gpt-4o')": KNOWN})
    write_json(profiles / "math_tutoring" / "interaction_style.json", {"(5, 'u1', 'gpt-4o')": HEDGING})
    write_json(profiles / "document_creation" / "writing_style.json", {"gpt-4o_w1_email_Apology: say sorry.": HEDGING})
    write_json(profiles / "document_creation" / "preferences.json", {"gpt-4o_w1_email_Apology: say sorry.": TONE})
    return tmp_path


def test_only_the_first_problem_is_talked_about(repository):
    (record,) = sim_arena.convert("math", repository)
    assert record["human_user_queries"] == ["where do i start", "ok 13"]
    talk = [(turn["role"], turn["content"]) for turn in json.loads(record["human_public_conversation"])]
    assert talk == [("user", "where do i start"), ("assistant", "Try small primes."), ("user", "ok 13")]


def test_a_student_is_described_without_the_solution(repository):
    (record,) = sim_arena.convert("math", repository)
    assert record["problem"] == "" and record["topic"] == record["question"] == "Algebra, Level 2. Concepts: Primes"
    profile = record["user_profile_text"]
    assert "high school" in profile and "I am stuck" in profile and "Primes: struggling" in profile
    assert "X" not in profile and "Hedging: Hardly ever." in profile
    assert "from 1 to 5 words" in profile
    assert "13 * 17" not in json.dumps(record)
    assert json.loads(record["target_interaction_style_features"]) == HEDGING
    assert record["target_writing_style_features"] == "[]"


def test_problem_texts_come_from_the_math_data_set_or_from_restored_annotations(repository, tmp_path):
    in_place = repository / "MATH" / "test" / "algebra" / "1.json"
    write_json(in_place, {"problem": "Factor 221.", "solution": "13 * 17"})
    (record,) = sim_arena.convert("math", repository)
    assert record["problem"] == record["question"] == "Factor 221."
    assert "13 * 17" not in json.dumps(record)
    restored = write_json(tmp_path / "restored.json", [{**MATH, "question": "Restored."}])
    assert sim_arena.convert("math", restored)[0]["problem"] == "Restored."


def test_a_writer_has_notes_wishes_and_a_style(repository):
    (record,) = sim_arena.convert("doc", repository)
    assert record["pre_writing_materials_text"] == "- To whom?\n  Susan"
    assert "Tone: Warm." in record["user_profile_text"] and "Hedging" in record["user_profile_text"]
    assert json.loads(record["target_document_preferences"]) == TONE
    assert (record["document_type"], record["intent"]) == ("email", "Apology: say sorry.")
    assert len(record["human_user_queries"]) == 3


def test_pictures_and_failed_replies_are_no_turns(tmp_path):
    raw = {**DOC, "user_queries": ["hi", ["/tmp/image.png"], "bye"], "ai_responses": ["Hello.", None]}
    (record,) = sim_arena.convert("doc", write_json(tmp_path / "a.json", [raw]))
    assert record["human_user_queries"] == ["hi", "bye"]


@pytest.mark.parametrize("kind", TASKS)
def test_real_records_become_rows_that_can_be_played(kind, tmp_path, capsys):
    source = DATA / f"sim_{kind}"
    if not source.exists():
        pytest.skip(f"no benchmark records at {source} (SOUL_DATA_SOURCES)")
    sim_arena.BUILDER.main(["convert", kind, str(source), "--out", str(tmp_path / "all.parquet")])
    records, task, queries = pq.read_table(tmp_path / "all.parquet").to_pylist(), TASKS[kind], 0
    annotations = json.loads(next(source.glob("*_benchmarking.json")).read_text())
    for record in records:
        assert record["data_source"] == task.name
        row = task.row_type.model_validate(record["extra_info"])
        task.check(row)
        text = task.prompt(row)[0]["content"]
        assert "None" not in text.split() and row.user_profile_text in text
        assert row.human_public_conversation[0]["content"] == row.human_user_queries[0]
        raw = annotations[row.index]
        if kind == "math":
            first_problem = [q for q in raw["user_queries"][: raw["problem_1_turns"]] if isinstance(q, str)]
            assert row.human_user_queries == [query.strip() for query in first_problem]
            assert "struggling" in text or "partial understanding" in text or "knows well" in text
        else:
            assert row.human_user_queries == [query.strip() for query in raw["user_queries"]]
            assert row.pre_writing_materials_text in text and raw["intent"].strip() in text
        queries += len(row.human_user_queries)
    assert len(records) == len(annotations) > 30 and queries > 250
    assert kind == "math" or sum(r["extra_info"]["target_document_preferences"] != "[]" for r in records) > 30
    assert list(records[0]) == ["data_source", "prompt", "extra_info"]
