"""MirrorBench's training dialogues: the four corpora in their published forms, what is left out, and the goal stage.

The corpora themselves are out of reach here, so these records are invented, in the forms that their authors document.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import mirrorbench_train
from data.mirrorbench_train import Dialogue, read
from data.model_stages import Item
from soul.rows import data_card as card
from soul.rows.task_files import read_rows
from soul.testing import FakeOpenAI, Json, ServerError
from tests.data.source_files import build_training, write_json, write_lines

GOAL = "The user is after practical advice. The user writes briefly and politely."


def message(role: str, text: str, *replies: dict, **fields: object) -> dict:
    return {"role": role, "text": text, "lang": "en", "replies": list(replies), **fields}


def tree(number: int, **fields: object) -> dict:
    follow_up = message("prompter", f"thanks {number}", message("assistant", "welcome", rank=0))
    replies = [
        message("assistant", "second best", rank=1),
        message("assistant", f"best {number}", message("prompter", "ok"), follow_up, rank=0),
        message("assistant", "mejor", lang="es", rank=-1),
    ]
    prompt = message("prompter", f"how do I mend fence number {number}", *replies)
    return {"message_tree_id": f"t{number}", "tree_state": "ready_for_export", "prompt": prompt, **fields}


def battle(number: int, **fields: object) -> dict:
    sides = {
        f"conversation_{side}": [
            {"role": "user", "content": f"write a poem about cloud {number}"},
            {"role": "assistant", "content": f"poem of {side}"},
        ]
        for side in "ab"
    }
    about = {"question_id": f"q{number}", "model_a": "one", "model_b": "two", "winner": "model_b"}
    return {**about, "language": "English", "openai_moderation": {"flagged": False}, **sides, **fields}


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    folder = tmp_path / "sources" / "mirrorbench_corpora"
    folder.mkdir(parents=True)
    other = tree(5, prompt=message("prompter", "hola", lang="es"))
    with gzip.open(folder / "2023_oasst_ready.trees.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(one) + "\n" for one in [*map(tree, range(4)), other])
    battles = [*map(battle, range(4)), battle(7, winner="tie"), battle(8, openai_moderation={"flagged": True})]
    pq.write_table(pa.Table.from_pylist(battles), folder / "train-00000.parquet")
    columns = "\ttopic_id\tfacet_id\tfacet\tinitial_request\tquestion1\tanswer1\tquestion2\tanswer2\tquestion3\tanswer3"
    lines = [
        f"{n}\t{100 + n // 2}\tF1\tfacet\tTell me about pond {n}\tdo you want fish\tno\tfrogs\tyes please\t\t"
        for n in range(6)
    ]
    (folder / "multi_turn_human_generated_data.tsv").write_text("\n".join([columns, *lines]) + "\n")
    rows = {
        "topic_id": {"0": 100, "1": 7, "2": 8},
        "question": {"0": "do you like ponds", "1": "are you near the library", "2": None},
        "answer": {"0": "yes", "1": "no i only want its opening hours", "2": None},
    }
    write_json(folder / "qulac.json", rows)
    return folder


def test_each_corpus_gives_linear_dialogues(corpora):
    left_out: Counter[str] = Counter()
    found = {one.id: one for path in sorted(corpora.iterdir()) for one in read(path, left_out)}
    assert Counter(one.dataset for one in found.values()) == {"oasst1": 4, "chatbot_arena": 4, "clariq": 6, "qulac": 2}
    said = [turn["content"] for turn in found["t1"].turns]
    assert said == ["how do I mend fence number 1", "best 1", "thanks 1", "welcome"]
    assert [turn["content"] for turn in found["q1::two"].turns][1] == "poem of b"
    assert (
        found["clariq-3"].user_turns == ["Tell me about pond 3", "no", "yes please"]
        and found["clariq-3"].topic == "101"
    )
    assert found["qulac-1"].turns[0]["role"] == "assistant" and found["qulac-1"].topic == "7"
    assert left_out == {
        "oasst1: not English": 1,
        "chatbot_arena: no side won": 1,
        "chatbot_arena: flagged by moderation": 1,
    }


@pytest.mark.parametrize(
    ("goal", "wrong"),
    [
        (GOAL, ""),
        ("The user wants help.", "2 to 4 sentences"),
        ("The user asks: how do I mend fence number 4. The user is polite.", "quotes the user"),
        ('The user is polite. The user ends with "thanks so much".', "quotes the user"),
        (
            "The user wants to mend a fence. The user is polite! Is the user in haste? No. Not at all.",
            "2 to 4 sentences",
        ),
    ],
)
def test_a_goal_that_is_too_short_or_quotes_the_user_has_a_fault(goal, wrong):
    turns = [{"role": "user", "content": "how do I mend fence number 4"}, {"role": "user", "content": "thanks so much"}]
    found = mirrorbench_train.fault(Item("k", {"turns": turns}), mirrorbench_train.Goal(goal=goal))
    assert wrong in found and bool(found) == bool(wrong)


def test_draws_are_spread_over_turns_and_topics():
    def one(number: int, turns: int, topic: str) -> Dialogue:
        return Dialogue("", "clariq", str(number), ({"role": "user", "content": "a"},) * turns, topic)

    found = [one(number, 1, "big") for number in range(50)] + [one(50 + n, 1, f"small{n}") for n in range(5)]
    found += [one(100 + n, 3, "long") for n in range(10)]
    drawn = mirrorbench_train._spread(found, 20, __import__("random").Random(1))
    assert Counter(len(dialogue.turns) for dialogue in drawn) == {1: 10, 3: 10}
    assert {f"small{n}" for n in range(5)} < {dialogue.topic for dialogue in drawn}


def run(fake: FakeOpenAI, sources: Path, *words: str) -> int:
    return build_training(fake, sources, "mirrorbench", *words)


def evaluation(corpora: Path) -> None:
    """The test set: tree 0, an Arena opening, and the topic 100, which ClariQ and Qulac share."""
    turns = [{"role": "user", "content": "Write a poem about cloud 1"}, {"role": "assistant", "content": "no"}]
    records = {
        "oasst1": {"conversation_id": "t0", "turns": [{"role": "user", "content": "other"}], "metadata": {}},
        "chatbot_arena": {"conversation_id": "x::y", "turns": turns, "metadata": {}},
        "clariq": {
            "conversation_id": "c",
            "turns": [{"role": "user", "content": "z"}],
            "metadata": {"topic_id": "100"},
        },
        "qulac": {"conversation_id": "d", "turns": [{"role": "user", "content": "w"}], "metadata": {"topic_id": 55}},
    }
    folder = corpora.parent / "mirrorbench"
    folder.mkdir()
    for name, record in records.items():
        write_lines(folder / f"{name}_mirror.jsonl", {"dataset": name, "task_description": GOAL, **record})


def test_the_file_has_goals_and_nothing_that_is_evaluated(corpora, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    evaluation(corpora)

    def script(request):
        text = json.dumps(request.data)
        if "fence number 2" in text:  # copies the user, twice
            return Json({"goal": "The user asks how do I mend fence number 2. The user is polite."})
        return Json({"goal": GOAL})

    with FakeOpenAI(script) as fake:
        assert run(fake, corpora.parent, "--dry-run") == 0 and fake.requests == []
        assert "goals: 16 calls to" in capsys.readouterr().out.replace("\n", " ")
        assert run(fake, corpora.parent, "judge.price_in=1", "judge.price_out=1") == 0
        # Left out before a model is asked: tree 0, cloud 1, two of ClariQ's topic 100, one of Qulac's.
        asked = 16 - 5
        assert len(fake.requests) == asked + 1
        assert (
            run(fake, corpora.parent, "judge.price_in=1", "judge.price_out=1") == 0 and len(fake.requests) == asked + 1
        )
    out = corpora.parents[1] / "out" / "sim_rl_data" / "mirrorbench_rl_train.parquet"
    rows = read_rows([str(out)])
    assert len(rows) == asked - 1 and {row.row.task_description for row in rows} == {GOAL}
    ids = {row.row.conversation_id for row in rows}
    assert ids == {"t1", "t3", "q0::two", "q2::two", "q3::two", *(f"clariq-{n}" for n in range(2, 6)), "qulac-1"}
    about = card.read(out)
    assert about is not None and about.left_out["clariq: " + mirrorbench_train.EVALUATED] == 2
    (use,) = about.models
    assert (use.role, use.calls, use.prompt) == ("goal_writer", asked + 1, "mirrorbench/goal.v1") and use.usd
    assert next(why for why in about.left_out if "quotes the user" in why)


def test_a_failed_call_fails_the_file_and_is_asked_for_again(corpora, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    evaluation(corpora)
    out = corpora.parents[1] / "out" / "sim_rl_data" / "mirrorbench_rl_train.parquet"
    with FakeOpenAI(lambda request: ServerError() if "cloud 3" in request.text else Json({"goal": GOAL})) as fake:
        assert run(fake, corpora.parent) == 1
        assert "goals: 1 of 11 items were not answered (1 server_error" in capsys.readouterr().out
        assert not out.exists()
    with FakeOpenAI(Json({"goal": GOAL})) as fake:
        # The journal names the model and not the address, so a server that comes back elsewhere goes on.
        assert run(fake, corpora.parent) == 0 and len(fake.requests) == 1
    with FakeOpenAI(Json({"goal": GOAL})) as fake:
        assert run(fake, corpora.parent, "goal_writer.model=other") == 1
    assert "goals.jsonl holds answers of" in capsys.readouterr().out
    assert len(read_rows([str(out)])) == 11
