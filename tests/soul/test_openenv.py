"""SOUL by OpenEnv: a client over the network gets what our own engine gives, and never a made-up reward."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("openenv", reason="its pins (mcp, pillow) conflict with vLLM's: test_adapters_installed.py")
import requests  # noqa: E402
import uvicorn  # noqa: E402
from openenv.core import GenericEnvClient  # noqa: E402

from soul import examples  # noqa: E402
from soul.openenv import create_app, load_sets  # noqa: E402
from soul.suites import soul_v1  # noqa: E402
from soul.testing import FakeOpenAI, ServerError  # noqa: E402
from soul.testing.replies import ChatRequest  # noqa: E402
from tests.soul.adapted import JUDGE, data_of_all_sets, played_by_our_engine, policy_or_judge  # noqa: E402

SPACE = Path(__file__).resolve().parents[2] / "examples" / "openenv_space"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return data_of_all_sets(tmp_path_factory.mktemp("data"), 3)


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@contextmanager
def served(judge, names, data):
    """The address of a server in this process."""
    app = create_app(load_sets(names, data, {"judge": {**JUDGE, "base_url": judge.url}}, None, 0, None))
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def turn(observation):
    body = {"model": "under-test", "messages": observation["messages"]}
    return {"text": policy_or_judge(ChatRequest(0, body)).content}


def played(client, **reset):
    """All results of one episode."""
    results = [client.reset(**reset)]
    while not results[-1].done:
        results.append(client.step(turn(results[-1].observation)))
    return results


@pytest.mark.parametrize("name, seats", [("hitom", 1), ("sotopia", 1), ("coser", 2), ("userllm", 1)])
def test_rewards_and_conversations_are_those_of_our_own_engine(name, seats, data, tmp_path):
    with FakeOpenAI(policy_or_judge) as fake:
        ours = played_by_our_engine(fake, name, data, tmp_path)
        with served(fake, name, data) as url, GenericEnvClient(base_url=url).sync() as client:
            for index, sample in enumerate(ours):
                first, *others = played(client, index=index, episode_id=f"row-{index}")
                draft, state = sample.draft, client.state()
                assert first.reward is None and all(result.reward == 0.0 for result in others[:-1])
                assert others[-1].reward == pytest.approx(draft.reward)
                assert others[-1].observation["metrics"] == pytest.approx(draft.metrics)
                assert others[-1].observation["critique"] == draft.critique
                assert state["attempt"]["seats"] == draft.seats and len(draft.seats) >= seats
                assert (state["episode_id"], state["step_count"]) == (f"row-{index}", len(others))
                seen = {result.observation["seat"] for result in (first, *others[:-1])}
                assert seen == {seat for seat, messages in draft.seats.items() if messages}


def test_a_second_reset_carries_the_feedback(data):
    example = examples.load("hitom")
    with FakeOpenAI(policy_or_judge) as fake, served(fake, "hitom,sotopia", data) as url:
        with GenericEnvClient(base_url=url).sync() as client:
            first, end = played(client, split="hitom", index=1, refine=True)
            feedback = end.observation["feedback"]
            assert feedback and not any(secret in feedback for secret in example.task.secrets(example.row(1)))
            again, _ = played(client, split="hitom", index=1, feedback=feedback)
            state = client.state()
    assert first.observation["base"] == first.observation["messages"] == again.observation["base"]
    assert feedback in again.observation["messages"][-1]["content"]
    assert state["refined"] and state["attempt"]["base"] == {"policy": first.observation["messages"]}


def test_sessions_are_apart_and_a_failed_judge_is_an_error_without_a_reward(data):
    down = threading.Event()

    def script(request):
        return ServerError() if down.is_set() and "response_format" in request.body else policy_or_judge(request)

    with FakeOpenAI(script) as fake, served(fake, "humanual_chat,hitom", data) as url:
        with GenericEnvClient(base_url=url).sync() as one, GenericEnvClient(base_url=url).sync() as two:
            started = [one.reset(split="humanual_chat", index=0), two.reset(split="hitom", index=0)]
            down.set()
            assert two.step(turn(started[1].observation)).done
            with pytest.raises(RuntimeError, match="server_error"):
                one.step(turn(started[0].observation))
            assert one.state()["attempt"]["failure"]["stage"] == "judge" and one.state()["attempt"]["reward"] is None
            with pytest.raises(RuntimeError, match="call reset first"):
                one.step({"text": "And another thing."})
            down.clear()
            assert played(one, split="humanual_chat", index=0)[-1].reward is not None
            for reset, message in (
                ({"split": "hitmo", "index": 0}, "this server has humanual_chat, hitom"),
                ({"split": "hitom", "index": 3}, "rows 0 to 2"),
                ({"split": "hitom", "indx": 0}, "no argument 'indx'"),
            ):
                with pytest.raises(RuntimeError, match=message):
                    one.reset(**reset)
            drawn = [one.reset(split="hitom", seed=5).observation["messages"] for _ in range(2)]
            assert drawn[0] == drawn[1]


def test_the_task_provider_lists_splits_and_rows(data):
    with FakeOpenAI(policy_or_judge) as fake, served(fake, "soul_v1", data) as url:
        splits = requests.get(f"{url}/soul/splits", timeout=10).json()

        def ask(path, **what):
            return requests.post(f"{url}/soul/{path}", json={"split": "fantom", **what}, timeout=10)

        assert {split["name"] for split in splits} == set(soul_v1.SETS) and {s["type"] for s in splits} == {"test"}
        listed = ask("tasks").json()["tasks"]
        assert ask("num_tasks").json() == {"num_tasks": 3} and [task["index"] for task in listed] == [0, 1, 2]
        assert ask("task", index=2).json()["task"] == listed[2]
        assert ask("task_range", start=1).json()["tasks"] == listed[1:]
        assert ask("task", index=3).status_code == 400


@pytest.mark.e2e  # processes that import openenv
def test_openenv_validates_the_package_and_a_running_server(data, tmp_path):
    openenv = Path(sys.executable).with_name("openenv")
    with FakeOpenAI(policy_or_judge) as fake, served(fake, "hitom", data) as url:
        for words in ([str(SPACE), "--level", "static"], ["--url", url]):
            done = subprocess.run(
                [openenv, "validate", *words], capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0 and "Verdict: PASS" in done.stdout, done.stdout + done.stderr
