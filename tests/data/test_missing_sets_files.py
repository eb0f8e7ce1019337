"""The converters of BehaviorChain, SocSci210 and HumanLLM, and clones with files out of reach, from invented records.

BehaviorChain's data are withheld, SocSci210's are on a hub that is out of reach here, and HumanLLM's are not public.
"""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data import behavior_chain, sets, socsci210
from soul import examples
from soul.rows.data_card import read_inside
from soul.rows.task_files import read_rows
from soul.suites import soul_v1
from tests.data.fantom_official import entries
from tests.data.source_files import write_json, write_lines
from tests.published import KEPT


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
    built = behavior_chain.BUILDER.build(["convert", str(path), "--out", str(out)])
    assert built.left_out == {behavior_chain.NO_OPTIONS: 1}
    rows = read_rows([str(out)])
    assert [row.row.current_context for row in rows] == ["Scene 1.", "Scene 2.", "Scene 4."]
    assert [row.task.options(row.row)[row.task.gold(row.row)] for row in rows] == ["runs 1", "runs 2", "runs 4"]
    assert [row.row.earlier_scenes for row in rows] == [1, 2, 4]
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
    socsci210.BUILDER.build(["convert", str(lines), "--out", str(out)])
    assert len(read_rows([str(out)])) == 8


def test_a_draw_is_seeded_and_fair(tmp_path):
    path = write_lines(tmp_path / "answers.jsonl", *answers("s1", "1", [n % 9 for n in range(200)]))
    draws = [tuple(r["response"] for r in socsci210.convert([path], rows=50, seed=seed).records) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2] and len(draws[0]) == 50
    assert len(Counter(draws[0])) == 9


def clones(root: Path) -> None:
    """Clones and downloads with the files that are out of reach here, in their authors' layout and form."""
    write_json(root / "BehaviorChain" / "data" / "finally_examples_Ponds.json", book(link(0), link(1)))
    write_json(root / "SocSci210" / "metadata" / "participant_mapping.json", {"unseen": ["s2"]})
    write_table(
        root / "SocSci210" / "data" / "train-0.parquet", [{**r, "response": str(r["response"])} for r in SOCSCI]
    )
    item = examples.load("humanllm")
    write_table(root / "humanllm" / "item_selection.parquet", [item.record(number) for number in range(2)])
    for kind in ("book", "chat", "email", "news", "opinion", "politics"):
        about = {"prompt": [{"role": "poster", "content": "A post."}], "completion": "A reply.", "persona": "Kind."}
        write_table(root / f"humanual-{kind}" / "data" / "test-0.parquet", [{**about, "post_id": "p", "user_id": "u"}])
    for name in ("Reddit_DEMO", "Reddit_PAIR", "Reddit_UGC", "Arbitrary", "History16"):
        pair, comment = {"prompt": "Tea?", "chosen": "No.", "rejected": "Ah."}, {"prompt": "Rain?", "comment": "Ugh."}
        known = {"Pair-wise Comparative Feedback": [pair], "User-Generated Content": [comment], "profile": "Blunt"}
        write_json(root / "AlignX-test" / f"{name}.json", [{"prompt": name, "chosen": "y", "rejected": "n", **known}])
    write_json(root / "fantom" / "data" / "fantom" / "fantom_v1.json", entries(19))
    choice = {"Scenario": "At the weir.", "Question": "What now?", "Options": ["A.x", "B. y"], "Correct Answer": "B"}
    decision = {"character_name": "Ada", "book": "Weir", "input_text": "Ada.", "Multiple Choice Question": choice}
    write_json(root / "LifeChoice" / "data" / "data.json", [[decision]])
    post = {"history": ["Hm."], "choices": ["one", "two", "three", "four"], "answer_idx": 2, "user_id": "u"}
    character = {"NameCanonical": "Ida", "UtteranceHistory": [{"chunk_id": "1", "utterance": "Hm."}]}
    scene = {"chunk_id": "2", "speaker": "Ida", "context": "A knock at the door of the old mill."}
    scene |= {"mcq": {"options": dict(zip("ABCD", post["choices"], strict=True)), "answer": "C"}}
    for name, record in {
        "dimension_1/pchatbot.jsonl": {**post, "anchor_post": "Who goes?"},
        "dimension_2/conversation_data.jsonl": {**post, "context": "Who stays?"},
        "dimension_3/choices.jsonl": scene,
        "dimension_3/profiles.jsonl": {"characterList": {"1": character}},
    }.items():
        write_lines(write_json(root / "TwinBench" / "dataset" / name, {}), record)
    hard = {"prompt_text": "Bo leaves.\nA. Yes\nB. No", "answer_letter": "B"}
    write_table(root / "ToMBench_Hard" / "data" / "train-0.parquet", [hard])
    bat = {"question": "Where does a bat sleep?", "choices": {"label": ["A", "B"], "text": ["cave", "barn"]}}
    write_lines(write_json(root / "commonsenseqa" / "dev_rand_split.jsonl", {}), bat)
    bridge = {"question": "who built the bridge", "answer": ["Roe"]}
    write_lines(write_json(root / "natural-questions" / "nq_open" / "NQ-open.dev.jsonl", {}), bridge)
    turns = [{"turn": 0, "role": "user", "content": "do bees see"}]
    talk = {"conversation_id": "c7", "user_id": "u3", "conversation_history": turns}
    write_lines(write_json(root / "prism-alignment" / "data" / "conversations.jsonl", {}), talk)
    intent = {"key": "c7", "answer": {"intent": "Gain insight into insect vision."}, **KEPT}
    write_lines(write_json(root / "userllm" / "intents.jsonl", {}), intent)


def write_table(path: Path, records: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), path)


def test_files_out_of_reach_are_built_from_clones_and_stand_in_for_nothing(tmp_path: Path):
    clones(tmp_path / "sources")
    assert set(sets.BUILDS) >= set(soul_v1.SETS)
    single = {"behaviorchain", "socsci210", "humanllm", "fantom", "lifechoices", "twinvoice", "social_r1", "userllm"}
    several = {name for name in soul_v1.SETS if name.startswith(("humanual_", "alignx_"))}
    for name in single | several:
        out = tmp_path / f"{name}.parquet"
        outcome = sets.build_set(name, tmp_path / "sources", out)
        assert outcome.state == "built", (name, outcome)
        assert {row.task.name for row in read_rows([str(out)])} == {soul_v1.SETS[name].task}
        assert read_inside(out).stands_in == ""
        if name.startswith("alignx_"):
            word = name.removeprefix("alignx_")
            assert [row.row.raw_prompt.lower().removeprefix("reddit_") for row in read_rows([str(out)])] == [word]
    assert len({row.row.source for row in read_rows([str(tmp_path / "userllm.parquet")])}) == 3
    assert {row.row.dimension for row in read_rows([str(tmp_path / "twinvoice.parquet")])} == {"1", "2", "3"}
