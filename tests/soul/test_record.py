"""The record of a session: written, read back and refused, line by line.

Promise under test: what is written is read back whole, whatever text a model produced; a line of another version or a
damaged one is refused by file, line and remedy; a last line that a kill cut short is no error.
"""

import asyncio
import json
import math

import pytest

from soul import examples
from soul.examples.endpoint import answer
from soul.judge.call.usage import Usage
from soul.record import (
    SCHEMA_VERSION,
    AttemptRecord,
    BadRecord,
    Failure,
    OpinionRecord,
    SequenceSummary,
    SessionRecord,
    read_records,
    record_hash,
)
from soul.session import RefineSettings, run_session
from soul.testing import FakeOpenAI, fake_gateway, scripted_players
from tests.soul.samples import TASKS

HALF = "half of a pair: \ud83d, and \u2028 </script> größer"


def full():
    """A record with something in every field."""
    usage = Usage(calls=3, requests=2, cost_usd=0.25, seconds=1.5)
    usage.failures["timeout"] += 1
    usage.latency[-7] += 2
    messages = [{"role": "system", "content": HALF}, {"role": "assistant", "content": "yes"}]
    attempt = AttemptRecord(
        seats={HALF: messages},
        base={HALF: [{"role": "system", "content": "without"}]},
        ended="left",
        episode={"acts": [{"speaker": "Ann", "held_back": False}]},
        reward=0.5,
        metrics={"nan": math.inf, HALF: 0.5},
        critique=HALF,
        jury=[OpinionRecord(judge="a", reward=0.5, metrics={"m": 1.0}), OpinionRecord(judge="b", failure="refusal")],
        canary=OpinionRecord(judge="c", reward=0.25),
        contentless=True,
        failure=None,
        seconds={"play": 0.5},
        started={"play": 1795460000.25},
    )
    lost = AttemptRecord(failure=Failure("play", "deadline", HALF), base={})
    return SessionRecord(
        task="sotopia",
        set="my set",
        file="/data/größer.parquet",
        number=3,
        row=17,
        sample=2,
        record_hash="ab" * 16,
        record={"text": HALF, "numbers": [1, 2.5, None]},
        question=HALF,
        target="B. box",
        stamp="0123456789ab",
        shortened=["history"],
        groups={"order": "2"},
        prompts=["sotopia/judge.v2"],
        draft=attempt,
        feedback=HALF,
        feedback_failure=Failure("feedback", "leak", "nothing was left"),
        redactions=2,
        redacted=["option C", HALF],
        full_marks=10.0,
        refined=lost,
        usage={"judge": usage, "policy": Usage()},
        step=7,
        side=HALF,
        policy=HALF,
        session="uid_1",
        prompt="uid",
        model_version=6,
        out_of_tokens={"draft": 1},
        advantages={"draft": -0.5},
        sequences=[
            SequenceSummary(
                attempt="draft",
                seat=HALF,
                kind="draft",
                prompt_tokens=12,
                response_tokens=3,
                logp_sampled=-0.5,
                logp_base=-0.75,
                advantage=-0.5,
                weight=0.125,
                distill_weight=0.25,
            ),
            SequenceSummary(
                attempt="refined", seat="", kind="refined", prompt_tokens=1, response_tokens=0, masked="no verdict"
            ),
        ],
        dropped=True,
    )


@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_field_is_read_back_as_it_was_written(ascii_only):
    record = full()
    untouched = [name for name, field in SessionRecord.model_fields.items() if field.default == getattr(record, name)]
    assert untouched == ["schema_version"]  # a new field belongs into `full`
    line = record.to_line(ascii_only)
    assert "\n" not in line and line.isascii() is ascii_only
    read = SessionRecord.from_line(line.encode(), "here")
    assert read == record and read.to_line(ascii_only) == line and read.key == ("my set", 3, 2)
    assert read.usage["judge"].percentile(0.5) == record.usage["judge"].percentile(0.5)
    saved = json.loads(line)
    assert (saved["schema_version"], saved["draft"]["valid"], saved["refined"]["valid"]) == (
        SCHEMA_VERSION,
        True,
        False,
    )


@pytest.mark.parametrize("name", TASKS)
def test_a_session_of_every_task_keeps_episode_and_base_context(name):
    example = examples.load(name)
    row = example.row(0)
    player = example.player("oracle", row)
    gateway = fake_gateway(FakeOpenAI(answer), max_attempts=1)
    session = asyncio.run(run_session(example.task, row, scripted_players(player), gateway, RefineSettings()))
    record = SessionRecord.from_line(session.to_record("rows.parquet", 4).to_line(), "here")
    assert (record.task, record.file, record.number, record.row) == (name, "rows.parquet", 4, row.index)
    assert record.record_hash == record_hash(row) == record_hash(row.model_copy(update={"index": 99}))
    for attempt, played in zip(record.attempts, (session.draft, session.refined), strict=False):
        assert attempt.valid and example.task.saved_episode(attempt) == played.episode
        for seat, said in attempt.in_base_context().items():
            _, base = played.players.seats[seat].heard[-1]
            assert base is None or said[: len(base)] == base
    assert record.draft.base == {} and record.draft.in_base_context() == record.draft.seats


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"\xff\xfe", "UnicodeDecodeError"),
        (b"hello", "JSONDecodeError"),
        (b"null", "TypeError"),
        (b'{"schema_version": 3, "task": "hitom"}', "has schema_version 3; this release reads 2"),
        (b'{"schema_version": 2, "task": "hitom", "number": 0, "row": 0}', "draft: is missing"),
        (b'{"schema_version": 2, "task": "hitom", "number": 0, "row": 0, "draft": {"reward": "7"}}', "draft.reward: "),
        (b'{"schema_version": 2, "task": "hitom", "number": 0, "row": 0, "draft": {"reward": true}}', "draft.reward: "),
        (b'{"schema_version": 2, "task": "hitom", "number": 0, "row": 0, "draft": {"reward": NaN}}', "draft.reward: "),
    ],
)
def test_a_damaged_line_is_named_with_its_remedy(line, reason, tmp_path):
    file = tmp_path / "samples.jsonl"
    file.write_bytes(full().to_line(ascii_only=True).encode() + b"\n" + line + b"\n")
    with pytest.raises(BadRecord) as refused:
        list(read_records(file))
    text = str(refused.value)
    assert text.startswith(f"{file}: line 2 ") and reason in text


def test_a_last_line_that_a_kill_cut_short_is_left_out(tmp_path):
    file, line = tmp_path / "samples.jsonl", full().to_line(ascii_only=True).encode() + b"\n"
    for kept in (0, 1, len(line) // 2, len(line) - 1):
        file.write_bytes(line + line + line[:kept])
        found = list(read_records(file))
        assert [(start, end) for start, end, _ in found] == [(0, len(line)), (len(line), 2 * len(line))]
        assert all(record == full() for _, _, record in found)
    file.write_bytes(b"")
    assert list(read_records(file)) == []
