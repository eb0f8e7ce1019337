"""What is said in episodes of UserLLM, as lines of the journal and as the numbers of a set."""

from soul.evaluate.numbers.results import summarise
from soul.judge import Contentless
from soul.record import SessionRecord
from soul.session import SAID_NOTHING, Attempt
from soul.task_types import Verdict
from soul.testing import scripted_players
from tests.soul.tasks.userllm_rows import TASK, Fixed, episode_of, row_of, verdict_of


def line(number, record, text, judge, k=0, valid=True):
    """A line of the journal, as the driver would write it."""
    row = row_of(record, index=number)
    attempt = Attempt(scripted_players(text)(), episode_of(row, text))
    if valid:
        try:
            attempt.verdict = verdict_of(row, text, judge)
        except Contentless:
            attempt.contentless = True
            attempt.verdict = Verdict(0.0, {TASK.headline.name: 0.0}, SAID_NOTHING)
    return SessionRecord(
        set="userllm",
        task="userllm",
        number=number,
        row=number,
        sample=k,
        stamp=f"userllm-{number}",
        record=row.model_dump(mode="json"),
        groups=dict(TASK.groups(row)),
        draft=attempt.to_record(),
    )


def played(said, judge=None):
    """The numbers of a set in which these things were said: (record, text), or (record, None) for a failure."""
    lines = [line(i, record, text or "?", judge or Fixed(0.5), valid=text is not None) for i, (record, text) in said]
    return summarise(lines, ["userllm"]).sets["userllm"]
