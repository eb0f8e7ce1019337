"""A task of one spoken turn whose feedback is its judge's critique: what the tests of judges and of the driver vary."""

from collections.abc import Sequence

from soul.judge import Judge
from soul.message import Message
from soul.policy import Players
from soul.task import Task
from soul.task_types import Episode, Row, Verdict


class SpokenTask(Task[Row]):
    """Subclasses set `name` and `headline`, and judge."""

    row_type = Row

    def prompt(self, row: Row, feedback: str | None = None) -> list[Message]:
        return [{"role": "user", "content": f"Say something. {feedback or ''}"}]

    async def play(self, row: Row, players: Players, feedback: str | None) -> Episode:
        messages: Sequence[Message] = self.prompt(row, feedback)
        answer = await players.policy().say(messages, base=self.prompt(row))
        return Episode({"policy": [*messages, {"role": "assistant", "content": answer}]})

    async def feedback(self, row: Row, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        return verdict.critique
