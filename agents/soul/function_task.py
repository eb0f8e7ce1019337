"""A task from two functions: one gives an answer its reward, one its critique.

    from soul.function_task import PromptRow, function_task

    def reward(row: PromptRow, text: str) -> float:
        return float(row.answer in text)

    def critique(row: PromptRow, text: str) -> str:
        return "Your answer must name a place."

    Places = function_task("places", reward, critique)      # register Places in the entry-point group `soul.tasks`

Rows have a prompt, and what else the functions read. The class has the methods of any other task; `soul init` makes a
package with fields and prompts of your own (docs/add_a_task.md).
"""

from collections.abc import Callable, Sequence

from pydantic import ConfigDict

from soul.judge import Judge
from soul.one_turn import OneTurnTask
from soul.task_types import Episode, Metric, NotBlank, Row, Verdict


class PromptRow(Row):
    """A prompt and its answer, which no model sees but the critic; further fields are attributes of the row."""

    model_config = ConfigDict(extra="allow", frozen=True)

    prompt: NotBlank
    answer: str = ""


Reward = Callable[[PromptRow, str], float]
Critique = Callable[[PromptRow, str], str]


def function_task(
    name: str, reward: Reward, critique: Critique | None = None, headline: Metric | None = None
) -> type[OneTurnTask[PromptRow]]:
    """Make the class of a task with one turn.

    Args:
        name: the rows' `data_source`.
        reward: row and answer -> reward, in the headline's range; an empty answer has its worst value.
        critique: row and answer -> critique; None: the feedback's model writes it, from prompt, `answer` and attempt.
        headline: name and range of the reward; None: "reward", from 0 to 1.
    """
    of_the_set = headline or Metric("reward", source="its function")

    class FunctionTask(OneTurnTask[PromptRow]):
        """A task of two functions."""

        row_type = PromptRow
        headline = of_the_set
        calls_per_feedback = 0.0 if critique else OneTurnTask.calls_per_feedback

        def render(self, row: PromptRow) -> str:
            return row.prompt

        def gold(self, row: PromptRow) -> str:
            return row.answer

        def secrets(self, row: PromptRow) -> Sequence[str]:
            return (row.answer,) if row.answer else ()

        def target(self, row: PromptRow) -> str | None:
            return row.answer or None

        async def judge(self, row: PromptRow, episode: Episode, judge: Judge) -> Verdict:
            said = episode.answer.strip()
            value = float(reward(row, episode.answer)) if said else self.headline.worst
            return Verdict(value, {self.headline.name: value})

        async def feedback(self, row: PromptRow, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
            if critique is not None:
                return critique(row, episode.answer)
            return await super().feedback(row, episode, verdict, judge)

    FunctionTask.name = name
    return FunctionTask
