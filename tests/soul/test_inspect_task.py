"""SOUL as a task of Inspect: the real package over HTTP gives what our own engine gives, and never a made-up score."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

inspect_ai = pytest.importorskip("inspect_ai")
from inspect_ai.log import read_eval_log  # noqa: E402
from inspect_ai.model import get_model  # noqa: E402

from soul import examples  # noqa: E402
from soul.examples.command import write  # noqa: E402
from soul.inspect_task import soul  # noqa: E402
from soul.testing import FakeOpenAI, ServerError, Unauthorized  # noqa: E402
from tests.soul import adapted  # noqa: E402
from tests.soul.adapted import played_by_our_engine, policy_or_judge  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
JUDGE = {f"judge.{key}": value for key, value in adapted.JUDGE.items()}


def evaluated(fake, task, log_dir, **more):
    model = get_model("openai-api/local/under-test", base_url=fake.url, api_key="EMPTY", memoize=False)
    (log,) = inspect_ai.eval(task, model=model, display="none", log_dir=str(log_dir), max_connections=4, **more)
    return log


def rows(name, tmp_path, count=5):
    file = tmp_path / f"{name}.parquet"
    write([name], count, file)
    return str(file)


@pytest.mark.parametrize("name, seats", [("hitom", 1), ("coser", 2)])
def test_rewards_and_conversations_are_those_of_our_own_engine(name, seats, tmp_path):
    file = rows(name, tmp_path)
    with FakeOpenAI(policy_or_judge) as fake:
        samples = played_by_our_engine(fake, file, tmp_path, tmp_path / "run")
        ours = {sample.number: sample for sample in samples}
        log = evaluated(fake, soul(set=file, **JUDGE, **{"judge.base_url": fake.url}), tmp_path / "logs")
    assert log.status == "success" and not fake.errors
    right, example = name == "hitom", examples.load(name)  # hitom has a right answer
    assert len(log.samples) == len(ours) == 5
    for sample in log.samples:
        draft, found = ours[sample.id].draft, sample.scores["verdict"]
        assert (found.value, found.explanation) == (pytest.approx(draft.reward), draft.critique)
        assert found.metadata["metrics"] == pytest.approx(draft.metrics)
        assert sample.store["played"]["seats"] == draft.seats and len(draft.seats) >= seats
        spoken = [m.text for m in sample.messages if m.role == "assistant"]
        assert spoken == [m["content"] for said in draft.seats.values() for m in said if m["role"] == "assistant"]
        assert sample.target == (example.task.target(example.row(sample.id)) or "") and right == bool(sample.target)
        assert (found.answer == sample.target) == (found.value == 1.0) if right else found.answer in spoken
    (headline,) = (score for score in log.results.scores if score.name == "verdict")
    assert headline.metrics["mean"].value == pytest.approx(sum(s.draft.reward for s in ours.values()) / 5)
    assert (headline.scored_samples, headline.unscored_samples) == (5, 0)
    assert len({s.draft.reward for s in ours.values()}) > 1 or name != "hitom"


def test_a_sample_without_a_verdict_is_unscored_and_counted(tmp_path):
    def script(request):
        judged = request.body["model"] != "under-test"
        return (
            ServerError()
            if judged and "response_format" in request.body and failing(request)
            else policy_or_judge(request)
        )

    seen = {}

    def failing(request):  # every second episode, whatever comes first
        return seen.setdefault(request.text, len(seen)) % 2 == 0

    with FakeOpenAI(script) as fake:
        task = soul(set=rows("humanual-chat", tmp_path, 6), **JUDGE, **{"judge.base_url": fake.url})
        log = evaluated(fake, task, tmp_path / "logs")
    assert log.status == "success"
    scores = [sample.scores["verdict"] for sample in log.samples]
    invalid = [one for one in scores if math.isnan(one.value)]
    valid = [one.value for one in scores if not math.isnan(one.value)]
    assert len(invalid) == 3 and len(valid) == 3
    assert {one.reason for one in invalid} == {"judge:server_error"} and all(one.explanation for one in invalid)
    found = {score.name: score for score in log.results.scores}
    assert (found["verdict"].scored_samples, found["verdict"].unscored_samples) == (3, 3)
    assert found["verdict"].metrics["mean"].value == pytest.approx(sum(valid) / 3)
    again = read_eval_log(log.location)
    assert math.isnan(again.samples[0].scores["verdict"].value) or again.samples[0].scores["verdict"].value in valid


def test_a_judge_that_refuses_its_key_stops_the_eval(tmp_path):
    def script(request):
        return Unauthorized() if request.body["model"] != "under-test" else policy_or_judge(request)

    with FakeOpenAI(script) as fake:
        task = soul(set=rows("humanual-chat", tmp_path, 2), **JUDGE, **{"judge.base_url": fake.url})
        log = evaluated(fake, task, tmp_path / "logs")
    assert log.status == "error" and "Stopped" in log.error.message


def test_a_limit_of_inspect_leaves_the_sample_unscored(tmp_path):
    with FakeOpenAI(policy_or_judge) as fake:
        task = soul(set=rows("sotopia", tmp_path, 2), **JUDGE, **{"judge.base_url": fake.url})
        log = evaluated(fake, task, tmp_path / "logs", token_limit=1)
    assert log.status == "success" and all(sample.limit.type == "token" for sample in log.samples)
    (headline,) = (score for score in log.results.scores if score.name == "verdict")
    assert headline.unscored_samples == 2


@pytest.mark.e2e  # two processes that import inspect_ai
def test_from_the_command_line_with_an_entry_point_and_scored_again(tmp_path):
    """As a user calls it: by the name that the entry point gives it, then by its file; keys by their variables."""
    package = tmp_path / "site" / "ditto_soul-0.0.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: ditto-soul\nVersion: 0.0.0\n")
    (package / "entry_points.txt").write_text("[inspect_ai]\nsoul = soul.inspect_task\n")
    file = tmp_path / "sim_eval_data" / "humanual_chat_val.parquet"
    write(["humanual-chat"], 2, file)
    with FakeOpenAI(policy_or_judge) as fake:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "JUDGE_", "INSPECT_"))},
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)]),
            "INSPECT_LOG_DIR": str(tmp_path / "logs"),  # made by whatever Inspect does
            "LOCAL_API_KEY": "EMPTY",
            "MY_KEY": "sk-sentinel-9",
        }

        def inspect(*words):
            command = [sys.executable, "-m", "inspect_ai", *words]
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout + done.stderr

        judge = ["-T", f"judge.base_url={fake.url}", "-T", "judge.api_key_env=MY_KEY"]
        model = ["--model", "openai-api/local/under-test", "--model-base-url", fake.url, "--display", "plain"]
        own_file = ["-T", f"set={file}"]
        data = ["-T", f"data={tmp_path}"]
        ways = [("soul", own_file), ("agents/soul/inspect_task.py@soul", own_file), ("soul/humanual_chat", data)]
        for place, (name, where) in enumerate(ways):
            logs = tmp_path / f"logs{place}"
            shown = inspect("eval", name, *where, *judge, *model, "--log-dir", str(logs))
            assert "mean" in shown and "Unclosed" not in shown
            (path,) = logs.glob("*.eval")
            log = read_eval_log(str(path))
            assert log.status == "success" and len(log.samples) == 2
            first = {sample.id: sample.scores["verdict"].value for sample in log.samples}
        asked = len(fake.requests)
        words = [
            "--scorer",
            "agents/soul/inspect_task.py@verdict",
            "--action",
            "overwrite",
            "--output-file",
            str(tmp_path / "again.eval"),
        ]
        words += ["-S", f"judge.base_url={fake.url}", "-S", "judge.api_key_env=MY_KEY", "-S", "judge.model=another"]
        inspect("score", str(path), *words)
        again = fake.requests[asked:]
        assert {request.body["model"] for request in again} == {"another"}
    scored = read_eval_log(str(tmp_path / "again.eval"))
    assert {sample.id: sample.scores["verdict"].value for sample in scored.samples} == first
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"sk-sentinel" not in written
