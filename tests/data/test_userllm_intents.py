"""Intents for PRISM's conversations.

Promise under test: over real HTTP, a sentence that copies the person is asked for again, kept or dropped as its faults
deserve; nothing is asked twice, not even after a kill; no command turns a person's message into an intent.
"""

import json

import pytest

from data import intents, userllm
from soul.testing import FakeOpenAI, Json

FIXED = "Gain insight into an everyday subject."


def talk(number, *said, **other):
    history = []
    for turn, text in enumerate(said):
        history.append({"turn": turn, "role": "user", "content": text})
        history.append({"turn": turn, "role": "model", "content": f"reply {turn}", "if_chosen": True})
    return {"conversation_id": f"c{number}", "user_id": f"u{number}", "conversation_history": history, **other}


def source(folder, *talks):
    path = folder / "conversations.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in talks), encoding="utf-8")
    return path


def run(fake, *arguments):
    where = (f"judge.base_url={fake.url}", "judge.api_key_env=none", "judge.max_attempts=1")
    return intents.main([*map(str, arguments), *where])


def written(path):
    return {line["key"]: line for line in map(json.loads, path.read_text().splitlines())}


@pytest.mark.parametrize(
    "intent, hard, shared",
    [
        ("Gain insight into insect vision.", 0, []),
        ("Learn which colours bees perceive.", 0, ["bees"]),
        ("Ask do bees see red or blue today.", 1, ["bees", "see", "red", "blue"]),
        ("do bees see red or blue", 1, ["bees", "see", "red", "blue"]),
        ("Bees?", 1, ["bees"]),
        ("Ask about it.", 1, []),  # nothing in it tells what
        ("Gain insight.\nThen leave for good.", 1, []),
        (" ".join(f"word{i}" for i in range(40)), 1, []),
    ],
)
def test_what_is_wrong_with_a_sentence(intent, hard, shared):
    found = intents.faults(intent, ["do bees see red or blue", "why"])
    assert (len(found.hard), list(found.shared)) == (hard, shared)


@pytest.mark.parametrize(
    "answers, kept",
    [
        (["Gain insight into insect vision."], "Gain insight into insect vision."),
        (["Learn what bees perceive.", "Gain insight into insect vision."], "Gain insight into insect vision."),
        (["Learn what bees perceive.", "Know if bees perceive red."], "Learn what bees perceive."),
        (["do bees see red or blue", "Learn what bees perceive."], "Learn what bees perceive."),
        (["do bees see red or blue", "say: do bees see red or blue"], ""),
    ],
)
def test_a_sentence_with_a_fault_is_asked_for_once_more(tmp_path, capsys, answers, kept):
    path, out = source(tmp_path, talk(1, "do bees see red or blue", "why")), tmp_path / "intents.jsonl"
    with FakeOpenAI([Json({"intent": text}) for text in answers]) as fake:
        assert run(fake, path, "--out", out) == 0
        assert len(fake.requests) == len(answers)
        assert fake.requests[0].data == {"messages": ["do bees see red or blue", "why"]}
        assert all(request.asks(intents.PROMPT) for request in fake.requests)
        if len(answers) > 1:
            assert fake.requests[1].data["rejected"] == {"intent": answers[0]} and fake.requests[1].data["reason"]
        assert run(fake, path, "--out", out) == 0 and len(fake.requests) == len(answers)  # what is done stays done
    line = written(out)["c1"]
    assert line["data"] == {"messages": ["do bees see red or blue", "why"]} and bool(line["reason"]) == (not kept)
    assert line["prompt"] == "userllm/intent.v1" and line["model"]
    converted = userllm.convert([path, out])
    assert [record["intent"] for record in converted.records] == [kept] * (2 if kept else 0)
    assert converted.left_out == ({} if kept else {userllm.NO_GOOD_INTENT: 2})
    assert ("left out: 1" in capsys.readouterr().out) == (not kept)


def test_the_plan_comes_first_and_a_dry_run_asks_nothing(tmp_path, capsys):
    path, out = source(tmp_path, *(talk(i, f"question number {i}") for i in range(30))), tmp_path / "new" / "i.jsonl"
    priced = ("judge.price_in=1000", "judge.price_out=1000")
    with FakeOpenAI(Json({"intent": FIXED})) as fake:
        assert run(fake, path, "--out", out, "--limit", 10, "--dry-run", *priced) == 0
        said = capsys.readouterr().out
        assert "10 of 30 conversations" in said and "10 calls to" in said and "at most twice that" in said
        assert "about $" in said and "price unknown" not in said
        assert fake.requests == [] and not out.parent.exists()
        assert run(fake, path, "--out", out, "--limit", 10, *priced) == 0
        said = capsys.readouterr()
        assert "10 calls to" in said.err and said.out.index("10 intents") < said.out.index("10 calls for $")
        assert len(fake.requests) == 10
        first = set(written(out))
        assert run(fake, path, "--out", out, "--limit", 25) == 0 and len(fake.requests) == 25
        assert "price unknown" in capsys.readouterr().err
    assert first < set(written(out)) and len(written(out)) == 25


def test_after_a_kill_in_the_middle_of_a_line_the_same_command_goes_on(tmp_path):
    path, out = source(tmp_path, *(talk(i, f"question number {i}") for i in range(12))), tmp_path / "intents.jsonl"
    with FakeOpenAI(Json({"intent": FIXED})) as fake:
        assert run(fake, path, "--out", out, "--limit", 5) == 0 and len(written(out)) == 5
        with out.open("a") as file:
            file.write('{"key": "c')
        assert run(fake, path, "--out", out) == 0
        assert len(fake.requests) == 12 and set(written(out)) == {f"c{i}" for i in range(12)}
