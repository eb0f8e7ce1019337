"""The trace that an agent loop sends with its outputs is the session's whole record."""

import asyncio
from typing import Any

from ditto.batch.sequence_record import SequenceRecord
from ditto.objectives.spec import Kind
from ditto.rollout.agent_loop import seat_sequences, session_outputs
from ditto.rollout.token_seat import TokenSeat
from soul import examples
from soul.examples.endpoint import answer
from soul.policy import Players
from soul.record import SessionRecord, record_hash
from soul.rows.task_files import TaskRow
from soul.session import Context, RefineSettings, Session, run_session
from soul.testing import FakeOpenAI, fake_gateway

KINDS: tuple[Kind, ...] = ("draft", "refined_base")


class Sampled(TokenSeat):
    """A seat whose engine always says the same; its sequence is full after the first turn."""

    def __init__(self, version: int) -> None:
        self.version, self.sequences = version, []

    async def say(self, messages: Any, base: Any = None) -> str:
        versions = (self.version, self.version)
        sequence = SequenceRecord("draft", "", "", True, turns=2, tokens=2, versions=versions, full=True)
        sequence.prompt_ids, sequence.base_prompt_ids, sequence.messages = [1, 2], [1], list(messages)
        sequence.response_ids, sequence.response_mask = [3, 4, 5], [1, 0, 1]
        sequence.response_logprobs = [-0.5, 0.0, -1.0]
        self.sequences.append(sequence)
        return "<answer>B</answer>"


def played(row: TaskRow, gate: str = "always") -> Session:
    """A session of the row, with feedback as the gate says."""

    def players(context: Context) -> Players:
        return Players(lambda seat: Sampled(7 if context == "base" else 8))

    gateway = fake_gateway(FakeOpenAI(answer), max_attempts=1)
    return asyncio.run(run_session(row.task, row.row, players, gateway, RefineSettings(when=gate), step=9))


def outputs_of(
    session: Session, row: TaskRow, kinds: tuple[Kind, ...] = KINDS, *, validate: bool = False
) -> tuple[list[Any], SessionRecord]:
    """What the agent loop hands to verl, and the trace that goes with it."""
    outputs = session_outputs(session, kinds, row, {}, 0, uid="abc", number=2, step=9, validate=validate)
    assert ["trace" in output.extra_fields for output in outputs] == [True] + [False] * (len(outputs) - 1)
    return outputs, SessionRecord.from_line(outputs[0].extra_fields["trace"], "here")


def hitom() -> TaskRow:
    example = examples.load("hitom")
    return TaskRow(example.task, example.row(3), "rows.parquet", 12)


def test_the_trace_of_the_first_output_is_the_sessions_record() -> None:
    row = hitom()
    outputs, record = outputs_of(played(row), row)
    assert [output.extra_fields["ditto"]["kind"] for output in outputs] == list(KINDS)
    assert (record.task, record.file, record.number, record.row, record.step) == ("hitom", "rows.parquet", 12, 3, 9)
    assert (record.session, record.prompt, record.model_version) == ("abc_2", "abc", 8)
    assert record.out_of_tokens == {"draft": 1, "refined": 1} and record.record_hash == record_hash(row.row)
    assert record.groups == dict(row.task.groups(row.row)) != {}
    assert record.refined is not None and record.feedback is not None and record.advantages == {}
    (conversation,) = record.refined.in_base_context().values()
    assert [*row.task.prompt(row.row), {"role": "assistant", "content": "<answer>B</answer>"}] == conversation


def test_the_trace_lists_every_sequence_and_each_output_finds_its_own() -> None:
    row = hitom()
    session = played(row)
    outputs, record = outputs_of(session, row, ("draft", "refined_base", "refined_feedback"))
    for output in outputs:
        fields = output.extra_fields["ditto"]
        summary = record.sequences[fields["place"]]
        assert summary.kind == fields["kind"] and summary.masked is None and summary.seat == "policy"
        assert summary.attempt == ("draft" if summary.kind == "draft" else "refined")
        assert (summary.prompt_tokens, summary.response_tokens) == (len(output.prompt_ids), sum(output.response_mask))
        assert summary.logp_sampled == -0.75  # of the two sampled tokens, without the context between them
    assert len(record.sequences) == len(outputs) == 3
    for _, _, sequence in seat_sequences(session.draft):
        sequence.turn_times = [(1.0, 0.5), (2.0, 0.5)]
    asked = session_outputs(session, KINDS, row, {}, 0, uid="abc", number=2, step=9, validate=False, with_tokens=True)
    with_tokens = SessionRecord.from_line(asked[0].extra_fields["trace"], "here")
    assert [turn[2]["logprobs"] for turn in with_tokens.turns("draft", "policy")] == [[-0.5], [-1.0]]
    assert record.sequences[0].prompt_ids == [] != with_tokens.sequences[0].prompt_ids
    for _, _, sequence in seat_sequences(session.draft):
        sequence.has_log_probs = False
    assert outputs_of(session, row)[1].sequences[0].logp_sampled is None


def test_a_sequence_that_cannot_be_trained_says_why() -> None:
    row = hitom()
    session = played(row)
    (_, after) = outputs_of(session, row, ("refined_base",))
    assert [(each.kind, each.masked) for each in after.sequences] == [
        ("refined_base", None),
        ("draft", "not in the objective"),
    ]
    assert session.refined is not None
    session.refined.verdict = None
    outputs, lost = outputs_of(session, row)
    assert [(each.kind, each.masked) for each in lost.sequences] == [("draft", None), ("refined_base", "no verdict")]
    assert [output.extra_fields["ditto"]["place"] for output in outputs] == [0]
    validated = played(row, "below:-1")
    assert [each.masked for each in outputs_of(validated, row, validate=True)[1].sequences] == ["validation"]
    validated.draft.verdict = None
    (placeholder,), none = outputs_of(validated, row)
    assert placeholder.extra_fields["ditto"]["place"] == -1 and [each.masked for each in none.sequences] == [
        "no verdict"
    ]
