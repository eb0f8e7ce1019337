"""The playground against endpoints over HTTP: whoever plays, what is shown and kept is the driver's own session."""

import io
import json
import time
from contextlib import closing

import pytest

from soul import examples
from soul import playground as play
from soul.cli.main import main
from soul.errors import BadSettings
from soul.examples.endpoint import answer
from soul.judge.call.http import HttpConnection
from soul.playground import CannotPlay, Playground, load_rows
from soul.record import read_records
from soul.testing import FakeOpenAI, ServerError, Text, refused_url

LIKED = "I liked the book, and I would read it again with my sister."


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """The addresses that requests are sent to. There is a key for OpenAI, but nothing names it as an endpoint."""
    for name in ("JUDGE_MODEL_NAME", "OPENAI_BASE_URL", "OPENAI_AGENT_MODEL", "OPENAI_AGENT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef0123")
    addresses, post = set(), HttpConnection.post
    monkeypatch.setattr(HttpConnection, "post", lambda self, body: addresses.add(str(self._url)) or post(self, body))
    return addresses


def playground(tmp_path, *tasks, **urls):
    """A playground with these roles, each at its address and with a model called after it."""
    settings = [
        f"{role}.{setting}"
        for role, url in urls.items()
        for setting in (f"base_url={url}", f"model=the-{role}", "api_key_env=none", "max_attempts=1")
    ]
    return closing(Playground.from_arguments(dict.fromkeys(tasks), settings, tmp_path / "kept"))


def state_at(ground, session, *turns):
    """The state once it is one of these turns."""
    for _ in range(2000):
        if (state := ground.state(session))["turn"] in turns:
            assert json.dumps(state)
            return state
        time.sleep(0.01)
    raise AssertionError(f"the session stays at {state}")


def answered(ground, task, text, *turns):
    """A person answers row 0 of a one-turn task: the state at one of these turns."""
    session = ground.start(task, 0, "me")["session"]
    state_at(ground, session, "person")
    ground.say(session, text)
    return state_at(ground, session, *turns)


def record_of(ground, session):
    ground.keep(session, "record")
    return [line.record for line in read_records(ground.folder / "records.jsonl")][-1]


def test_a_person_answers_refines_and_keeps_the_session_and_its_row(tmp_path, asked):
    with FakeOpenAI(answer) as fake, playground(tmp_path, "lifechoices", judge=fake.url) as ground:
        example, task = examples.load("lifechoices"), ground.tasks["lifechoices"]
        row = example.row(2)
        session = ground.start("lifechoices", 2, "me")["session"]
        state = state_at(ground, session, "person")
        assert state["agent"] == "policy" and state["draft"]["agents"]["policy"] == task.prompt(row)
        with pytest.raises(CannotPlay, match="being played"):
            ground.keep(session, "record")
        ground.say(session, example.contrarian(row)([]))
        with pytest.raises(CannotPlay, match="not your turn"):
            ground.say(session, "once more")
        state = state_at(ground, session, "refine")
        assert state["draft"]["reward"] == 0.0 and "target" not in state
        assert record_of(ground, session).usage["feedback"].requests == 1  # also before the session ends
        ground.refine(session)
        state = state_at(ground, session, "person")
        assert state["refined"]["agents"]["policy"] == task.prompt(row, state["feedback"]) != task.prompt(row)
        ground.say(session, example.oracle(row)([]))
        state = state_at(ground, session, "done")
        with pytest.raises(CannotPlay, match="refined once"):
            ground.refine(session)
        record = record_of(ground, session)
        ground.keep(session, "row")
        (again,) = load_rows("lifechoices", ground.folder / "rows.jsonl")
        assert asked == {f"{fake.url}/chat/completions"}
    assert (state["draft"]["reward"], state["refined"]["reward"], state["target"]) == (0.0, 1.0, task.target(row))
    assert (record.feedback, record.session, record.number) == (state["feedback"], session, 2)
    assert record.refined.seats["policy"] == state["refined"]["agents"]["policy"] and "policy" not in record.usage
    assert record.refined.base["policy"] == task.prompt(row) == task.prompt(again.row) and again.row == row


def test_an_endpoint_plays_a_dialogue_with_a_partner(tmp_path):
    oracle = examples.load("sotopia").oracle(examples.load("sotopia").row(0))
    with FakeOpenAI(lambda request: Text(oracle(request.messages))) as policy, FakeOpenAI(answer) as others:
        with playground(tmp_path, "sotopia", judge=others.url, policy=policy.url) as ground:
            session = ground.start("sotopia", 0, "endpoint")["session"]
            draft = state_at(ground, session, "refine")["draft"]
            ground.refine(session)
            state = state_at(ground, session, "done")
            record = record_of(ground, session)
    assert set(draft["agents"]) == {"policy", "partner"} and draft["agents"]["policy"] == record.draft.seats["policy"]
    assert draft["reward"] == record.draft.reward > 0 and state["refined"]["reward"] == record.refined.reward > 0
    assert state["feedback"] in state["refined"]["agents"]["policy"][0]["content"]
    assert {request.body["model"] for request in policy.requests} == {"the-policy"}
    assert record.usage["policy"].requests == len(policy.requests) and record.usage["partner"].requests > 0


def test_a_person_talks_to_a_simulator_and_sees_nothing_private_of_it(tmp_path):
    row, said = examples.load("sotopia").row(0), 0
    with FakeOpenAI(Text('{"action_type": "speak", "argument": "Good morning."}')) as policy:
        with FakeOpenAI(answer) as judge, playground(tmp_path, "sotopia", policy=policy.url, judge=judge.url) as ground:
            session = ground.start("sotopia", 0, "talk")["session"]
            while (state := state_at(ground, session, "person", "refine"))["turn"] == "person":
                assert state["agent"] == "partner" and row.of(row.eval_position, "goal") not in json.dumps(state)
                ground.say(session, f"Line {said} of mine." if said < 7 else '{"action_type": "leave", "argument": ""}')
                said += 1
            acts = record_of(ground, session).draft.episode["acts"]
    mine = [act["text"] for act in acts if act["speaker"] == row.of(row.partner_position, "name")]
    assert mine == [*(f"Line {i} of mine." for i in range(7)), ""]
    assert {act["text"] for act in acts if act["text"] not in mine} == {"Good morning."}
    assert state["draft"]["reward"] is not None and all("response_format" in each.body for each in judge.requests)


def test_nothing_is_asked_that_no_setting_names(tmp_path, asked):
    with FakeOpenAI(answer) as fake, playground(tmp_path, "sotopia", "socsci210", partner=fake.url) as ground:
        oracle = examples.load("socsci210").oracle(examples.load("socsci210").row(0))
        ruled = answered(ground, "socsci210", oracle([]), "done")
        assert asked == set() and "no feedback" in ground.notice("socsci210")
        assert "no verdict" in ground.notice("sotopia")
        assert ruled["draft"]["reward"] == ground.tasks["socsci210"].headline.high and ruled["feedback"] is None
        assert ground.about()["endpoints"] == {"partner": {"model": "the-partner", "address": fake.url}}
        session = ground.start("sotopia", 0, "me")["session"]
        while (state := state_at(ground, session, "person", "done"))["turn"] == "person":
            ground.say(session, "I see what you mean.")
        with pytest.raises(CannotPlay, match="policy.model"):
            ground.start("sotopia", 0, "talk")
        url = f"{fake.url}/chat/completions"
    assert state["draft"]["failure"]["cause"] == "not_found" and state["draft"]["reward"] is None
    assert asked == {url} and {each.body["model"] for each in fake.requests} == {"the-partner"}


@pytest.mark.parametrize("cause", ["connection", "server_error"])
def test_a_judge_that_is_down_gives_a_failure_and_no_score(tmp_path, cause):
    with FakeOpenAI(ServerError()) as failing:
        url = refused_url() if cause == "connection" else failing.url
        with playground(tmp_path, "humanual", "lifechoices", judge=url) as ground:
            judged = answered(ground, "humanual", LIKED, "done")
            ruled = answered(ground, "lifechoices", "<answer>A</answer>", "done")
            record = record_of(ground, judged["session"])
    assert (judged["draft"]["failure"]["cause"], judged["draft"]["failure"]["stage"]) == (cause, "judge")
    assert judged["draft"]["reward"] is judged["draft"]["metrics"] is record.draft.reward is None
    assert record.draft.failure.cause == cause and "refined" not in judged
    assert ruled["draft"]["reward"] is not None and ruled["feedback_failure"]["cause"] == cause


def test_a_person_who_plays_sees_the_feedback_and_not_the_critique(tmp_path):
    with FakeOpenAI(answer) as fake, playground(tmp_path, "humanual", judge=fake.url) as ground:
        state = answered(ground, "humanual", LIKED, "refine")
        critique = record_of(ground, state["session"]).draft.critique
    assert state["feedback"] and critique and state["draft"]["critique"] is None


def test_rows_are_found_by_their_words_and_a_row_of_your_own_is_played(tmp_path):
    with playground(tmp_path, "hitom") as ground:
        page = ground.rows("hitom")
        assert page["total"] == len(page["rows"]) == play.EXAMPLES == ground.about()["tasks"][0]["rows"]
        assert page["rows"][0]["words"].startswith("Mia and Tom")  # without the instructions that all share
        assert 0 < ground.rows("hitom", "THE ROPE")["total"] < play.EXAMPLES
        assert ground.rows("hitom", first=18)["rows"][0]["row"] == 18
        record = {**examples.load("hitom").record(0), "story": "1 Zelda entered the barn."}
        session = ground.start("hitom", record, "me")["session"]
        (message,) = state_at(ground, session, "person")["draft"]["agents"]["policy"]
        assert "Zelda entered the barn" in message["content"]
        for row, task, message in ((20, "hitom", "rows 0 to 19"), (0, "fantom", "no task 'fantom'")):
            with pytest.raises(CannotPlay, match=message):
                ground.start(task, row, "me")


def test_sessions_are_few_and_end_when_nobody_types(tmp_path, monkeypatch):
    monkeypatch.setattr(play, "IDLE_S", 2.0)
    with playground(tmp_path, "hitom") as ground:
        ids = [ground.start("hitom", 0, "me")["session"] for _ in range(play.MOST_SESSIONS)]
        with pytest.raises(CannotPlay, match="50 sessions are open"):
            ground.start("hitom", 0, "me")
        state = state_at(ground, ids[0], "done")
        assert state["draft"]["failure"]["cause"] == "deadline" and state["draft"]["reward"] is None
        ground.start("hitom", 0, "me")
        with pytest.raises(CannotPlay, match="has ended"):
            ground.state(ids[0])


def test_the_command_plays_refines_and_keeps(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("<answer>A</answer>\ny\n<answer>D</answer>\x1b[2J\ny\nn\n"))
    with FakeOpenAI(answer) as fake:
        assert main(["play", "hitom", f"--judge={fake.url}", "judge.api_key_env=none", "--keep", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.index("Reward 0 ") < printed.index("Feedback: ") < printed.index("Reward 1 ")
    (line,) = read_records(tmp_path / "records.jsonl")
    assert line.record.refined.reward == 1.0 and not (tmp_path / "rows.jsonl").exists()
    with pytest.raises(BadSettings, match=r"policy\.model"):
        Playground.from_arguments({"hitom": None}, ["policy.base_url=http://127.0.0.1:1/v1"], tmp_path)
