"""The trace that an agent loop sends with its outputs is the session's whole record."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ditto.objectives.spec import Kind
from ditto.rollout.agent_loop import _SequenceBuilder
from ditto.rollout.token_seat import TokenSeat, TokenSequence
from soul import examples
from soul.examples.endpoint import answer
from soul.policy import Players
from soul.record import SessionRecord, record_hash
from soul.rows.task_files import TaskRow
from soul.session import Context, RefineSettings, run_session
from soul.testing import FakeOpenAI, fake_gateway

KINDS: tuple[Kind, ...] = ("draft", "refined_base")


class Sampled(TokenSeat):
    """A seat whose engine always says the same; its sequence is full after the first turn."""

    def __init__(self, version: int) -> None:
        self.version, self.sequences = version, []

    async def say(self, messages: Any, base: Any = None) -> str:
        versions = (self.version, self.version)
        sequence = TokenSequence([1, 2], [1], list(messages), [3], [1], [-0.5], turns=1, versions=versions, full=True)
        self.sequences.append(sequence)
        return "<answer>B</answer>"


def test_the_trace_of_the_first_output_is_the_sessions_record() -> None:
    example = examples.load("hitom")
    row = TaskRow(example.task, example.row(3), "rows.parquet", 12)

    def players(context: Context) -> Players:
        return Players(lambda seat: Sampled(7 if context == "base" else 8))

    gateway = fake_gateway(FakeOpenAI(answer), max_attempts=1)
    session = asyncio.run(run_session(row.task, row.row, players, gateway, RefineSettings(), step=9))
    settings: Any = SimpleNamespace(objective=SimpleNamespace(kinds=KINDS))
    known = {"uid": "abc", "session_id": 2, "global_steps": 9}
    outputs = list(_SequenceBuilder(session, known, settings, 0, {}).build(False, row))
    assert [output.extra_fields["ditto"]["kind"] for output in outputs] == list(KINDS)
    assert ["trace" in output.extra_fields for output in outputs] == [True, False]
    record = SessionRecord.from_line(outputs[0].extra_fields["trace"], "here")
    assert (record.task, record.file, record.number, record.row, record.step) == ("hitom", "rows.parquet", 12, 3, 9)
    assert (record.session, record.prompt, record.model_version) == ("abc_2", "abc", 8)
    assert record.out_of_tokens == {"draft": 1, "refined": 1} and record.record_hash == record_hash(row.row)
    assert record.refined is not None and record.feedback is not None and record.advantages == {}
    (conversation,) = (record.refined.in_base_context() or {}).values()
    assert [*row.task.prompt(row.row), {"role": "assistant", "content": "<answer>B</answer>"}] == conversation
