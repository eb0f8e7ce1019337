"""The playground against real endpoints over HTTP: whoever plays, the session is the driver's own."""

import json
import time
from contextlib import closing

import pytest

from soul import examples
from soul.cli.main import main
from soul.errors import BadSettings
from soul.examples.endpoint import answer
from soul.pages import play
from soul.pages.play import CannotPlay, Playground, load_rows
from soul.record import read_records
from soul.testing import FakeOpenAI, ServerError, Text, refused_url
from soul.testing.server import IN_PROCESS_URL

OWN = ("JUDGE_MODEL_NAME", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_AGENT_MODEL", "OPENAI_AGENT_BASE_URL")


@pytest.fixture(autouse=True)
def _no_endpoints_of_this_machine(monkeypatch):
    for name in OWN:
        monkeypatch.delenv(name, raising=False)


def settings(**urls):
    """The settings of these roles; one request for each answer."""
    of_role = [f"{role}.base_url={url}" for role, url in urls.items()]
    more = [f"{role}.{key}" for role in urls for key in (f"model=the-{role}", "api_key_env=none", "max_attempts=1")]
    return [*of_role, *more]


def playground(tmp_path, *tasks, **urls):
    return closing(Playground.from_arguments(dict.fromkeys(tasks), settings(**urls), tmp_path / "kept"))


def waited(ground, session, *turns):
    """The state once it is one of these turns."""
    for _ in range(1000):
        state = ground.state(session)
        if state["turn"] in turns:
            return state
        time.sleep(0.01)
    raise AssertionError(f"still {state['turn']}: {state}")


def kept_record(ground, session):
    (line,) = read_records(ground.folder / "records.jsonl")
    assert ground.keep(session, "row")["file"] == str(ground.folder / "rows.jsonl")
    return line.record


def test_a_person_answers_refines_and_keeps_the_session_and_its_row(tmp_path):
    with FakeOpenAI(answer) as fake, playground(tmp_path, "lifechoices", judge=fake.url) as ground:
        example, task = examples.load("lifechoices"), ground.tasks["lifechoices"]
        row = example.row(2)
        session = ground.start("lifechoices", 2, "me")["session"]
        state = waited(ground, session, "person")
        assert state["agent"] == "policy" and state["draft"]["agents"]["policy"] == task.prompt(row)
        with pytest.raises(CannotPlay, match="being played"):
            ground.keep(session, "record")
        ground.say(session, example.contrarian(row)([]))
        with pytest.raises(CannotPlay, match="not your turn"):
            ground.say(session, "once more")
        state = waited(ground, session, "refine")
        assert state["draft"]["reward"] == 0.0 and state["feedback"] and "target" not in state
        ground.refine(session)
        state = waited(ground, session, "person")
        assert state["refined"]["agents"]["policy"] == task.prompt(row, state["feedback"])
        ground.say(session, example.oracle(row)([]))
        state = waited(ground, session, "done")
        assert (state["draft"]["reward"], state["refined"]["reward"]) == (0.0, 1.0)
        assert state["target"] == task.target(row) and json.dumps(state)
        ground.keep(session, "record")
        record = kept_record(ground, session)
        again = load_rows("lifechoices", ground.folder / "rows.jsonl")
        assert {request.body["model"] for request in fake.requests} == {"the-judge"}
    assert (record.draft.reward, record.feedback, record.session) == (0.0, state["feedback"], session)
    assert record.refined.seats["policy"] == state["refined"]["agents"]["policy"] and "policy" not in record.usage
    assert record.refined.base["policy"] == task.prompt(row) and record.record == row.model_dump(mode="json")
    assert [task.prompt(one.row) for one in again] == [task.prompt(row)]


def test_an_endpoint_plays_a_dialogue_with_a_partner(tmp_path):
    row = examples.load("sotopia").row(0)
    oracle = examples.load("sotopia").oracle(row)
    with FakeOpenAI(lambda request: Text(oracle(request.messages))) as policy, FakeOpenAI(answer) as others:
        with playground(tmp_path, "sotopia", judge=others.url, policy=policy.url) as ground:
            session = ground.start("sotopia", 0, "endpoint")["session"]
            state = waited(ground, session, "refine")
            ground.refine(session)
            done = waited(ground, session, "done")
            ground.keep(session, "record")
            record = kept_record(ground, session)
    draft = state["draft"]
    assert draft["reward"] == record.draft.reward is not None and draft["failure"] is None
    assert set(draft["agents"]) == {"policy", "partner"} and draft["agents"]["policy"] == record.draft.seats["policy"]
    assert done["refined"]["reward"] is not None and state["feedback"] in done["refined"]["agents"]["policy"][0]["content"]
    assert {request.body["model"] for request in policy.requests} == {"the-policy"}
    asked = len(policy.requests)
    assert record.usage["policy"].requests == asked and record.usage["partner"].requests > 0


def test_a_person_talks_to_a_simulator_without_seeing_what_it_knows(tmp_path):
    with FakeOpenAI(Text('{"action_type": "speak", "argument": "Good morning to you."}')) as policy:
        with FakeOpenAI(answer) as judge, playground(tmp_path, "sotopia", policy=policy.url, judge=judge.url) as ground:
            row = examples.load("sotopia").row(0)
            session = ground.start("sotopia", 0, "talk")["session"]
            said = 0
            while (state := waited(ground, session, "person", "refine"))["turn"] == "person":
                assert state["agent"] == "partner" and set(state["draft"]["agents"]) == {"partner"}
                ground.say(session, f"Line {said} of mine." if said < 7 else '{"action_type": "leave", "argument": ""}')
                said += 1
            acts = ground._games[session].session.draft.episode.acts
    others = [act for act in acts if act.speaker == row.of(row.partner_position, "name")]
    assert [act.text for act in others] == [*(f"Line {i} of mine." for i in range(7)), ""]
    assert all(act.text == "Good morning to you." for act in acts if act not in others)
    assert state["draft"]["reward"] is not None
    assert all("seven" not in str(request.messages[0]) or request for request in policy.requests)
    assert not any(request.body["model"] == "the-policy" for request in judge.requests)


def test_a_rule_gives_its_verdict_without_any_endpoint(tmp_path):
    with playground(tmp_path, "socsci210", "sotopia") as ground:
        row = examples.load("socsci210").row(1)
        assert "no feedback" in ground.notice("socsci210") and "no verdict" in ground.notice("sotopia")
        assert ground.about()["endpoints"] == {}
        session = ground.start("socsci210", 1, "me")["session"]
        waited(ground, session, "person")
        ground.say(session, examples.load("socsci210").oracle(row)([]))
        state = waited(ground, session, "done")
        assert state["draft"]["reward"] == ground.tasks["socsci210"].headline.high
        assert state["feedback"] is None and state["feedback_failure"] is None
        for player, missing in (("endpoint", "policy.model"), ("talk", "policy.model"), ("me", "partner")):
            with pytest.raises(CannotPlay, match=missing):
                ground.start("sotopia", 0, player)


@pytest.mark.parametrize("down", ["refused", "failing"])
def test_a_judge_that_is_down_gives_a_failure_and_no_score(tmp_path, down):
    with FakeOpenAI(ServerError()) as failing:
        url = refused_url() if down == "refused" else failing.url
        with playground(tmp_path, "humanual", "lifechoices", judge=url) as ground:
            session = ground.start("humanual", 0, "me")["session"]
            waited(ground, session, "person")
            ground.say(session, "I liked the book, and I would read it again with my sister.")
            state = waited(ground, session, "done")
            ruled = ground.start("lifechoices", 0, "me")["session"]
            waited(ground, ruled, "person")
            ground.say(ruled, "<answer>A</answer>")
            other = waited(ground, ruled, "done")
            ground.keep(session, "record")
            record = kept_record(ground, session)
    cause = "connection" if down == "refused" else "server_error"
    assert state["draft"]["failure"]["cause"] == cause and state["draft"]["failure"]["stage"] == "judge"
    assert state["draft"]["reward"] is None and state["draft"]["metrics"] is None and "refined" not in state
    assert other["draft"]["reward"] is not None and other["feedback_failure"]["cause"] == cause
    assert record.draft.failure.cause == cause and record.draft.reward is None


def test_a_person_who_plays_does_not_see_a_critique_that_may_name_the_answer(tmp_path):
    with FakeOpenAI(answer) as fake, playground(tmp_path, "humanual", judge=fake.url) as ground:
        session = ground.start("humanual", 0, "me")["session"]
        waited(ground, session, "person")
        ground.say(session, "I liked the book, and I would read it again with my sister.")
        state = waited(ground, session, "refine")
        assert state["feedback"] and state["draft"]["critique"] is None


def test_rows_are_found_by_their_words_and_a_row_of_your_own_is_played(tmp_path):
    with playground(tmp_path, "hitom") as ground:
        page = ground.rows("hitom")
        assert page["total"] == len(page["rows"]) == play.EXAMPLES == ground.about()["tasks"][0]["rows"]
        assert len({row["words"] for row in page["rows"]}) > 3 and not page["rows"][0]["words"].startswith("Read the")
        found = ground.rows("hitom", "THE ROPE")
        assert 0 < found["total"] < play.EXAMPLES and ground.rows("hitom", first=18)["rows"][0]["row"] == 18
        record = {**examples.load("hitom").record(0), "story": "1 Zelda entered the barn."}
        session = ground.start("hitom", record, "me")["session"]
        assert "Zelda entered the barn" in waited(ground, session, "person")["draft"]["agents"]["policy"][0]["content"]
        with pytest.raises(CannotPlay, match="rows 0 to 19"):
            ground.start("hitom", 20, "me")
        with pytest.raises(CannotPlay, match="no task 'fantom'"):
            ground.start("fantom", 0, "me")


def test_sessions_are_few_and_end_when_nobody_types(tmp_path):
    with closing(Playground({"hitom": None}, {}, tmp_path, idle_s=0.3)) as ground:
        ids = [ground.start("hitom", 0, "me")["session"] for _ in range(play.MOST_SESSIONS)]
        with pytest.raises(CannotPlay, match="50 sessions are open"):
            ground.start("hitom", 0, "me")
        state = waited(ground, ids[0], "done")
        assert state["draft"]["failure"]["cause"] == "deadline" and state["draft"]["reward"] is None
        ground.start("hitom", 0, "me")
        with pytest.raises(CannotPlay, match="has ended"):
            ground.state(ids[0])


def test_settings_that_are_wrong_are_refused_at_the_start(tmp_path):
    with pytest.raises(BadSettings, match="policy.model"):
        Playground.from_arguments({"hitom": None}, [f"policy.base_url={IN_PROCESS_URL}"], tmp_path)
    with pytest.raises(BadSettings, match="section.key=value"):
        Playground.from_arguments({"hitom": None}, ["judged.model=x"], tmp_path)


def test_the_command_plays_refines_and_keeps(tmp_path, monkeypatch, capsys):
    typed = ["<answer>A</answer>", "y", "<answer>D</answer>\x1b[2J", "y", "n"]
    monkeypatch.setattr("sys.stdin", iter_lines(typed))
    with FakeOpenAI(answer) as fake:
        judge = [f"--judge={fake.url}", "judge.api_key_env=none"]
        assert main(["play", "hitom", *judge, "--keep", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.index("Reward 0 ") < printed.index("Feedback: ") < printed.index("Reward 1 ") and "\x1b" not in printed
    (line,) = read_records(tmp_path / "records.jsonl")
    assert line.record.refined.reward == 1.0 and not (tmp_path / "rows.jsonl").exists()


def iter_lines(lines):
    import io

    return io.StringIO("".join(f"{line}\n" for line in lines))
