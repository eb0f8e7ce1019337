"""SOUL in verifiers: the real package over HTTP gives what our own engine gives, and never a made-up reward."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers", reason="its pins (mcp, openai<3) conflict with vLLM's: test_adapters_installed.py")
import verifiers.v1 as vf  # noqa: E402

from soul import adapters, tasks  # noqa: E402
from soul.errors import BadSettings  # noqa: E402
from soul.one_turn import ExactTask  # noqa: E402
from soul.suites import soul_v1  # noqa: E402
from soul.testing import FakeOpenAI, ServerError  # noqa: E402
from soul.verifiers import load_environment  # noqa: E402
from tests.soul.adapted import data_of_all_sets, played_by_our_engine, policy_or_judge  # noqa: E402

HUB = Path(__file__).resolve().parents[2] / "examples" / "verifiers_hub"


def episodes(fake, name, data, max_turns=None, **options):
    """The episodes of every row, in the set's order, run as vf-eval does."""
    judge = {"base_url": fake.url, "api_key_env": "none", "max_attempts": 1, "max_reasks": 0}
    context = vf.ModelContext(
        client=vf.EvalClientConfig(base_url=fake.url, api_key_var="NO_KEY"),
        model="under-test",
        sampling=vf.SamplingConfig(),
    )

    async def run():
        environment = load_environment(name, str(data), judge=judge, **options)
        environment.config.agent.max_turns = max_turns
        async with environment.serving():
            return [await environment.run_episode(task, context) for task in environment.taskset]

    return asyncio.run(run())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return data_of_all_sets(tmp_path_factory.mktemp("data"), 3)


@pytest.mark.parametrize("name, seats", [("hitom", 1), ("sotopia", 1), ("coser", 2), ("userllm", 1)])
def test_rewards_and_conversations_are_those_of_our_own_engine(name, seats, data, tmp_path):
    with FakeOpenAI(policy_or_judge) as fake:
        ours = played_by_our_engine(fake, name, data, tmp_path)
        found = episodes(fake, name, data)
    assert len(found) == len(ours) == 3 and not fake.errors
    for episode, sample in zip(found, ours, strict=True):
        (trace,), draft = episode.traces, sample.draft
        assert episode.ok and trace.reward == pytest.approx(draft.reward)
        assert trace.metrics == pytest.approx(draft.metrics)
        assert trace.info["attempt"]["critique"] == draft.critique
        assert trace.info["attempt"]["seats"] == draft.seats and len(draft.seats) >= seats
        branches = [[(m.role, m.content) for m in branch.messages] for branch in trace.branches]
        assert branches == [[(m["role"], m["content"]) for m in seen] for seen in draft.seats.values()]
        calls = [trace.nodes[call.node].message.content for call in trace.calls]
        spoken = [m["content"] for seen in draft.seats.values() for m in seen if m["role"] == "assistant"]
        assert sorted(calls) == sorted(spoken)


def test_all_sets_are_tasks_and_suites_have_their_rows(data):
    all_rows = list(load_environment("soul_v1", str(data)).taskset)
    assert {task.data.name.split("/")[0] for task in all_rows} == set(soul_v1.SETS) and len(all_rows) == 3 * 27
    assert len({task.key for task in all_rows}) == len(all_rows)
    assert all(task.row.task.prompt(task.row.row)[-1]["content"] == task.data.prompt[-1].content for task in all_rows)
    assert len(list(load_environment("paper", str(data), limit=2).taskset)) == 2 * len(soul_v1.PAPER)
    with pytest.raises(BadSettings, match="no evaluation set 'hitmo'"):
        list(load_environment("hitom,hitmo", str(data)).taskset)


def test_a_judge_that_fails_is_an_error_without_a_reward(data):
    def script(request):
        return ServerError() if "response_format" in request.body else policy_or_judge(request)

    with FakeOpenAI(script) as fake:
        found = episodes(fake, "humanual_chat", data, limit=1)
    (trace,) = found[0].traces
    assert not found[0].ok and not trace.ok and trace.last_error.type == "TaskError"
    assert "server_error" in trace.last_error.message
    assert trace.rewards == {"verdict": None}  # verifiers' own mark of a reward that was not given
    assert trace.info["attempt"]["seats"] and trace.info["attempt"]["failure"]["stage"] == "judge"


def test_a_policy_that_fails_and_a_limit_leave_no_reward(data):
    def script(request):
        return ServerError() if request.body["model"] == "under-test" else policy_or_judge(request)

    with FakeOpenAI(script) as fake:
        (failed,) = episodes(fake, "hitom", data, limit=1)
        assert failed.traces[0].last_error.type == "ProviderError" and not failed.traces[0].rewards
    with FakeOpenAI(policy_or_judge) as fake:
        (cut,) = episodes(fake, "sotopia", data, limit=1, max_turns=1)
    assert cut.traces[0].stop_condition and cut.traces[0].rewards == {"verdict": None} and not cut.ok


def test_the_refined_attempt_reads_the_feedback_and_is_judged_alike(data):
    with FakeOpenAI(policy_or_judge) as fake:
        (episode,) = episodes(fake, "hitom", data, limit=1, refine=True)
    draft, refined = episode.traces
    feedback = draft.info["feedback"]
    assert feedback and refined.task.data.feedback == feedback
    assert feedback in refined.nodes[0].message.content and feedback not in draft.nodes[0].message.content
    assert refined.info["attempt"]["base"]["policy"] == draft.info["attempt"]["seats"]["policy"][:1]
    assert refined.reward == draft.reward and draft.extra_usage  # the critique's call
    row = adapters.from_plain(draft.task.data.row, {}, "trace", 0)
    assert not any(secret in feedback for secret in row.task.secrets(row.row))


@pytest.mark.e2e  # processes that import verifiers
def test_validation_and_runner_from_the_command_line(data, tmp_path):
    """`vf-validate` over all sets, and `vf-eval` with the package for the hub."""
    bin, hub = Path(sys.executable).parent, {"PYTHONPATH": str(HUB), "NO_KEY": "EMPTY", "PATH": "/usr/bin:/bin"}

    def run(name, *words):
        command = [str(bin / name), *map(str, words), "--no-rich", "-o", str(tmp_path)]
        done = subprocess.run(command, env=hub, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    with FakeOpenAI(policy_or_judge) as fake:
        hub["OPENAI_BASE_URL"] = fake.url
        judge = ["--taskset.task.judge.api-key-env", "none"]
        words = ["soul-gym", "--taskset.data", data, "--runtime.type", "subprocess", "--run.name", "valid", *judge]
        run("vf-validate", *words)
        words = ["soul-hitom", "--env.taskset.data", data, "-m", "under-test", "--client.base-url", fake.url]
        run("vf-eval", *words, "--client.api-key-var", "NO_KEY", "--run.name", "run")
    summary = json.loads((tmp_path / "valid" / "summary.json").read_text())
    assert summary["total"] == 3 * 27 and summary["outcomes"]["invalid"] == summary["outcomes"]["error"] == 0
    exact = sum(isinstance(tasks.load(set.task), ExactTask) for set in soul_v1.SETS.values())
    assert summary["checks"]["noop"]["valid"] == 3 * 27 and summary["checks"]["gold"]["valid"] == 3 * exact > 30
    lines = (tmp_path / "run" / "traces.jsonl").read_text().splitlines()
    rewards = [trace["rewards"]["verdict"]["score"] for line in lines for trace in json.loads(line)["traces"]]
    assert len(rewards) == 3 and set(rewards) <= {0.0, 1.0}
