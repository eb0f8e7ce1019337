"""A training run whose sessions were played: real tasks and judges' calls, a policy that follows its feedback."""

import asyncio

from soul import examples
from soul.examples.endpoint import answer
from soul.judge import Gateway, Judge
from soul.record import SequenceSummary
from soul.session import RefineSettings, run_session
from soul.shown_answers import note_answers
from soul.testing import FakeOpenAI, Json
from soul.testing.doubles import Players, ScriptedSeat
from tests.soul.pages.invented_run import training, write_step

FEEDBACK = "You forgot who was in the room. Say plainly who saw the move. The story is short."
REASONED = "<think>She left first, I think.</think>"
PLAYED = ("hitom", "sotopia", "coser")
SESSIONS = 2  # of a group


def critic(request):
    """The examples' judges; feedback on HiToM is a text of our own."""
    reply = answer(request)
    return Json({**reply.value, "critique": FEEDBACK}) if "student practises" in request.text else reply


def played(name, number, k, step):
    """The record of a session: the draft is bad, the refined episode good and, in HiToM, says what was asked for."""
    example = examples.load(name)
    row = example.row(number)
    styles = {"base": "oracle" if k and name == "hitom" else "contrarian", "feedback": "oracle"}

    def players(context):
        turn = example.player(styles[context], row)

        def say(messages):
            seen = " Nobody but Ann plainly saw it." if context == "feedback" else ""
            return f"{REASONED}{seen} {turn(messages)}" if name == "hitom" else turn(messages)

        return Players(lambda seat: ScriptedSeat(say, seat))

    fake = FakeOpenAI(critic)
    gateway = Gateway.from_judge(Judge.connect(fake.endpoint(max_attempts=1), fake.connection()))
    session = asyncio.run(run_session(example.task, row, players, gateway, RefineSettings(), step=step))
    record = session.to_record(f"{name}.parquet", number)
    note_answers(record, example.task, row, (one.episode for one in (session.draft, session.refined) if one))
    record.session, record.prompt = f"{name}-{number}_{k}", f"{name}-{number}"
    for at, kind in (("draft", "draft"), ("refined", "refined_base"), ("refined", "refined_feedback")):
        for seat in record.attempts[at == "refined"].seats:
            size = {"prompt_tokens": 100 + len(kind), "response_tokens": 20 + k, "advantage": 0.5 - k}
            record.sequences.append(SequenceSummary(attempt=at, seat=seat, kind=kind, weight=0.0125, **size))
    return record


def read_training(folder, steps=2):
    """A run folder: for each step and task a group of two sessions, of the same rows in every step."""
    training(folder, steps=0)
    (folder / "traces" / "val_000000.jsonl").unlink()
    for step in range(1, steps + 1):
        write_step(folder, step, [played(name, 0, k, step) for name in PLAYED for k in range(SESSIONS)])
    return folder
