"""The right answer and the given one in samples.parquet, from real evaluations of every kind of task; and which turn of
an episode is the answer."""

import json

import pyarrow.parquet as pq
import pytest

from soul import examples
from soul.evaluate.command import main
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.tasks.coser_stage import ENVIRONMENT, Scene, SpokenLine
from soul.testing import FakeOpenAI, Text

B = "<answer>B</answer>"


def evaluated(name, tmp_path, monkeypatch, said=B):
    """The rows of samples.parquet of a real evaluation by a model that always says the same."""
    for variable in ("OPENAI_API_KEY", "OPENAI_AGENT_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    write([name], 6, tmp_path / f"{name}.parquet")

    def script(request):
        return Text(said) if request.body["model"] == "under-test" else answer(request)

    with FakeOpenAI(script) as fake:
        words = ["policy.model=under-test", f"policy.base_url={fake.url}", f"judge.base_url={fake.url}"]
        words += ["judge.api_key_env=none", "--out", str(tmp_path / "out")]
        assert main([str(tmp_path / f"{name}.parquet"), *words]) == 0
    (file,) = tmp_path.glob("out/*/samples.parquet")
    return pq.read_table(file).to_pylist()


@pytest.mark.parametrize("name", ["hitom", "fantom"])
def test_letter_tasks_show_letter_and_text_on_both_sides(name, tmp_path, monkeypatch):
    lines = evaluated(name, tmp_path, monkeypatch)
    task = examples.load(name).task
    assert len(lines) == 6 and len({line["target"] for line in lines}) > 1
    for line in lines:
        assert line["target"] == task.target(task.row_type.model_validate(json.loads(line["record"])))
        given, reward = line["given"], line["reward"]
        if name != "fantom" or json.loads(line["record"])["question_type"].endswith("multiple-choice"):
            assert given.startswith("B. ") and line["target"][1:3] == ". "
        assert (given == line["target"]) == (reward == 1.0)


def test_tasks_say_what_is_expected_or_that_nothing_is():
    loaded = {name: examples.load(name) for name in examples.names()}
    shown = {name: one.task.target(one.row(0)) for name, one in loaded.items()}
    judged = {"coser", "mirrorbench", "sim_arena_doc", "sim_arena_math", "sotopia", "userllm"}
    assert {name for name, text in shown.items() if not text and not name.startswith("humanual")} == judged
    letters = {"alignx", "behavior_chain", "hitom", "humanllm", "lifechoices", "mistakes", "social_r1", "twinvoice"}
    assert all(shown[name][1:3] == ". " for name in shown if name.partition("_")[0] in letters or name in letters)
    fantom = examples.load("fantom")
    rows = {fantom.row(number).kind: fantom.row(number) for number in range(20)}
    assert fantom.task.target(rows["list"]) == ", ".join(sorted(rows["list"].correct_answer))
    assert fantom.task.target(rows["binary"]) in ("yes", "no") and rows.keys() == {"choice", "list", "binary", "fact"}


# --- the policy's own last turn


def turn(role, text):
    return {"role": role, "content": text}


def test_of_several_characters_the_answer_is_the_turn_that_was_spoken_last():
    seats = {
        "Jo": [turn("user", "begin"), turn("assistant", "one"), turn("user", "two"), turn("assistant", "three")],
        "Amy": [turn("user", "one"), turn("assistant", "two"), turn("user", "three")],
    }
    lines = [
        SpokenLine("Jo", "one"),
        SpokenLine("Amy", "two"),
        SpokenLine("Jo", "three"),
        SpokenLine(ENVIRONMENT, "It rains."),
    ]
    assert Scene(seats, lines=tuple(lines)).answer == "three"
    assert Scene({}, lines=(SpokenLine(ENVIRONMENT, "It rains."),)).answer == ""
