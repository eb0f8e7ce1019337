"""Likeness: known numbers, equal sets, and people's conversations, which are nearer to people than proxies are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from soul.drop_in.audit import read
from soul.drop_in.faults import Transcript
from soul.drop_in.likeness import compare, main
from soul.testing import ChatRequest, FakeOpenAI, Json, Reply, ServerError
from tests.soul.samples import DATA

SUBSETS = ("chatbot_arena", "clariq", "oasst1", "qulac")


def talk(*turns: str) -> Transcript:
    """A conversation in which the other side says the same each time."""
    answer = {"role": "assistant", "content": "The refund was processed. Your refund was received."}
    messages = [message for turn in turns for message in ({"role": "user", "content": turn}, answer)]
    return Transcript("talk", tuple(messages))  # type: ignore[arg-type]


def test_numbers_are_those_of_the_turns() -> None:
    people = [talk("i want a refnud", "maybe it was recieved, u know?")] * 10
    measures = compare(people, people).measures
    shown = {name: one.mean for name, (one, other, far) in measures.items() if one == other and far == 0.0}
    words = 4 + 6
    assert {name: shown[name] for name in ("turns", "words per turn", "careless turns, %")} == {
        "turns": 2.0,
        "words per turn": words / 2,
        "careless turns, %": 100.0,
    }
    assert shown["hedges per 100 words"] == pytest.approx(100 / words)  # maybe
    assert shown["typos per 100 words"] == pytest.approx(100 * 2 / words)  # refnud, recieved
    assert {name: shown[name] for name in ("requests, %", "asks, %")} == {"requests, %": 50.0, "asks, %": 50.0}


def test_equal_sets_are_alike_and_opposite_ones_are_not() -> None:
    rude = [talk(f"no {'really ' * n}why") for n in range(20)]
    polite = [talk(f"Hello, I would be glad to hear of {'it ' * n}soon.") for n in range(20)]
    same, apart = compare(rude, rude).summary, compare(polite, rude).summary
    assert same["mean distance"].mean == same["behaviours, bits"].mean == 0.0
    assert same["told apart, %"].mean == 50.0
    assert apart["behaviours, bits"].mean == pytest.approx(1.0)  # no common cell
    assert apart["told apart, %"].mean == 100.0 and apart["mean distance"].mean > 0.5


@pytest.mark.parametrize("subset", SUBSETS)
def test_people_are_nearer_to_people_than_a_proxy_is(subset: str) -> None:
    file = DATA / "mirrorbench" / f"{subset}_mirror.jsonl"
    if not file.is_file():
        pytest.skip(f"no {file}")
    originals = read(file)
    people, others = originals[::2], originals[1::2]
    proxies = [
        replace(
            each,
            messages=tuple({**m, "content": _proxy(m["content"])} if m["role"] == "user" else m for m in each.messages),
        )
        for each in others
    ]
    right, wrong = compare(others, people).summary, compare(proxies, people).summary
    assert {name: right[name].mean < wrong[name].mean for name in right} == dict.fromkeys(right, True)


def _proxy(turn: str) -> str:
    """What the person says, as an assistant would put it."""
    wish = turn.strip().capitalize().rstrip("?.!")
    return f"Hello! I would like some help with the following, please: {wish}. Thank you!"


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {}
    for name, turn in (("people", "no {} why"), ("users", "Hello, I would like {} it.")):
        files[name] = tmp_path / f"{name}.jsonl"
        lines = [{"messages": [{"role": "user", "content": turn.format("so " * n)}]} for n in range(10)]
        files[name].write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [str(files["users"]), "--humans", str(files["people"]), "--json", str(tmp_path / "out.json")]
    assert main(words) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    expected = compare(read(files["users"]), read(files["people"])).summary
    assert {name: value[0] for name, value in found["summary"].items()} == {n: e.mean for n, e in expected.items()}
    assert "10 simulated users beside 10 people" in (out := capsys.readouterr().out) and "told apart, %" in out
    files["people"].write_text(files["people"].read_text().splitlines()[0])
    assert main(words) == 2
    assert "people.jsonl: 1 conversations are too few; 10 are needed" in capsys.readouterr().err


def test_a_judge_guesses_blind_and_its_failures_are_no_guesses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for side, turn in (("users", "Hello, I would like {} it. ###STOP###"), ("people", "no {} why")):
        turns = [{"role": "user", "content": turn.format("so " * n)} for n in range(20)]
        rows = [json.dumps({"instance_id": f"retail_{n}", "messages": [turn]}) for n, turn in enumerate(turns)]
        (tmp_path / side).write_text("\n".join(rows[:: -1 if side == "people" else 1]))
    first = []

    def judge(request: ChatRequest) -> Reply:
        if "ping" in request.data:
            return Json({"ready": True})
        a, b = (request.data[slot][0]["content"] for slot in "AB")
        assert (n := a.count("so ")) == b.count("so ") and "STOP" not in a + b  # n: the task of both
        first.append(a.startswith("no"))
        said = "tie" if n < 3 else "AB"[first[-1] == (n < 6)]  # wrong for 4 and 5
        return ServerError() if n == 3 else Json({"reasoning": "", "human": said})

    given = [str(tmp_path / "users"), "--humans", str(tmp_path / "people"), "judge.max_attempts=1"]
    with FakeOpenAI(judge) as fake:
        assert main([*given, f"judge.base_url={fake.url}", "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    mean, (low, high), floor = found["summary"]["told apart by a judge, %"]
    assert mean == pytest.approx(100 * (3 * 0.5 + 14) / 19) and low < mean < high and floor is None
    assert found["failed"] == {"server_error": 1} and 0 < sum(first) < 20
    assert "The judge compared 19 of 20 pairs (failed: server_error 1)." in capsys.readouterr().out
    with FakeOpenAI([Json({"ready": True}), *[ServerError()] * 20]) as fake:
        assert main([*given, f"judge.base_url={fake.url}"]) == 1
    assert "The judge compared 0 of 20 pairs (failed: server_error 20)." in capsys.readouterr().err
