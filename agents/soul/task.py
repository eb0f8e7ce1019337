"""The interface that all tasks implement; `task_types.py` has the types it uses.

A task plays a row (`play`), judges the episode (`judge`) and says in words what to improve (`feedback`). The draft and
the refined episode run the same `play` and `judge`, with feedback as an argument, so that the two cannot drift apart.
The driver (`session.py`), evaluation, training, tests and docs use only this interface.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, Literal

from soul.message import Message
from soul.task_types import Direction, Episode, GroupKey, Metric, RowT, Scored, Strata, Verdict

if TYPE_CHECKING:  # only names in signatures; the modules behind them load openai and SciPy
    from soul.judge import Judge, Role
    from soul.leaks.quotations import Choices
    from soul.metrics.set_metrics import Outcome, SetMetric
    from soul.policy import Players
    from soul.prompts import Prompt
    from soul.record import AttemptRecord


class Task(ABC, Generic[RowT]):
    """A task of SOUL. Subclasses set `name`, `row_type` and `headline`, and implement `play`, `judge` and `prompt`."""

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raise it when play or scoring change, so that an evaluation repeats its samples
    row_type: type[RowT]
    headline: Metric  # the metric that is an episode's reward; a set's score is the mean of its rewards
    # Metrics of a verdict besides the headline, as far as more or less of them is clearly better. Training raises an
    # alarm if one of them gets worse while the reward rises.
    better: Mapping[str, Direction] = {}
    ranges: Mapping[
        str, tuple[float, float]
    ] = {}  # of the metrics that people can rate and that are not the headline's
    set_headline: ClassVar[Metric | None] = None  # if given, the mean of `set_metrics` is the score of a set instead
    episode_type: ClassVar[type[Episode]] = Episode  # the type that `play` returns, to read saved episodes back
    # Calls that each role gets for one episode (play and verdict), and for the feedback on it. The plan of a run uses
    # them, and so does the check that all the endpoints that a run needs can be reached.
    calls_per_episode: Mapping[Role, float] = {"judge": 1.0}
    calls_per_feedback: ClassVar[float] = 0.0
    further_sides: Sequence[str] = ()  # seats whose goal is their own (`side_rows`)
    strata: ClassVar[Strata | None] = None  # how a sample of a set is stratified; None: not at all
    policy_turns: float = 1.0  # turns of all the policy's seats in an episode, for the plan of an evaluation
    # Fields of the row that may be shortened if its prompt is too long, in this order, and the end to keep: the start
    # of a biography, the end of a history (soul/rows/truncation.py).
    cuts: ClassVar[tuple[tuple[str, Literal["start", "end"]], ...]] = ()
    critic: ClassVar[Prompt]  # the instructions of the task's judge, if there is one call

    @property
    def prompts(self) -> Sequence[Prompt]:
        """The judge prompts that this task uses; the trace records their versions."""
        return (self.critic,) if hasattr(self, "critic") else ()

    @abstractmethod
    async def play(self, row: RowT, players: Players, feedback: str | None) -> Episode:
        """Play the row once. Feedback, if given, is part of the policy's instructions; partners never see it."""

    @abstractmethod
    async def judge(self, row: RowT, episode: Episode, judge: Judge) -> Verdict:
        """Score an episode. Equal episodes must get equal verdicts, whether draft or refined.

        Raises:
            JudgeFailure: the judge gave no verdict. Never return an invented score instead.
            Contentless: the policy said nothing (`Judge.ask(policy_texts=...)`); the driver then gives
                `headline.worst`.
        """

    async def feedback(self, row: RowT, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        """Say in words how to improve the episode: the verdict's critique, if the task makes no call for it.

        Raises:
            JudgeFailure: the model that should write the feedback failed.
        """
        return verdict.critique

    def side_rows(self, row: RowT) -> Mapping[str, RowT]:
        """The `further_sides`, each with the row as its player sees it; none by default.

        Each is a side of the play: `judge`, `feedback`, `missing_form` and `secrets` get its row and its own seat. It
        has a reward and a group of its own, and `play` finds its feedback in `players.feedback`.
        """
        return {}

    def hidden_dimensions(self, seed: str) -> frozenset[str]:
        """Draw the dimensions that the training judge is not asked about (`Judge.hidden`); none by default."""
        return frozenset()

    @abstractmethod
    def prompt(self, row: RowT, feedback: str | None = None) -> list[Message]:
        """The first messages that a seat sees; with several seats, the longest of their prompts."""

    def missing_form(self, row: RowT, episode: Episode) -> str | None:
        """Say what the episode lacks of the form that the task asks for; None if nothing.

        The driver puts this sentence before the feedback, and in its place if the episode has no content. It must not
        quote the episode. A task that asks for a form also reports the metric `answered`: 1.0 if the episode has the
        form, 0.0 if not, or the share of the policy's turns that have it.
        """
        return None

    def secrets(self, row: RowT) -> Sequence[str]:
        """Texts that feedback must not contain: the gold answer, and anything that reveals it by elimination."""
        return ()

    def choices(self, row: RowT) -> Choices | None:
        """The lettered options of a row, which feedback must neither point at nor quote; None if there are none."""
        return None

    def groups(self, row: RowT) -> Mapping[str, str]:
        """The groups of the row, by kind: {"order": "2"}. Evaluation breaks its numbers down by these groups.

        Each kind should have few values (question types, subsets, topics), which follow from the record alone. Anything
        that differs from episode to episode (dimensions of a verdict) is a metric instead.
        """
        return {}

    def group_keys(self, row: RowT) -> Sequence[GroupKey]:
        """Name what the row shares with others: its story, conversation, book, user. The best name comes first.

        Rows that share a key must be on the same side of a split, however different their prompts are
        (`soul.rows.overlap`). Keys of the kind BOOK are compared across tasks, all others within a task.

        Override this if rows come in groups. The default key is the prompt, so that only equal prompts form a group.
        """
        # Prompts of one task share their instructions, so their words say nothing about what rows have in common.
        prompt = " ".join(message["content"] for message in self.prompt(row))
        return [GroupKey.from_text("prompt", prompt, prose=False)]

    def held_out_keys(self, row: RowT) -> Sequence[GroupKey]:
        """The keys that no training row may have if this row is evaluated: a subset of `group_keys`."""
        return self.group_keys(row)

    def target(self, row: RowT) -> str | None:
        """The right answer, as reports show it beside the given one; None if no single answer is right.

        For example "B. the green box", or "A. 7 or C. 7.0" if several options are right.
        """
        return None

    def given(self, row: RowT, episode: Episode) -> str | None:
        """The answer that was read from an episode, in the form of `target`.

        A right answer equals the target, or is one of those that the target lists. None if no answer could be read, and
        for tasks without a target.
        """
        return None

    def check(self, row: RowT) -> None:
        """Check what the schema cannot, for example that the gold answer is among the choices.

        Raises:
            ValueError: the row is invalid; the message begins with the field's name, as in "correct_answer: ...".
        """

    def saved_episode(self, attempt: AttemptRecord) -> Episode:
        """The episode of a recorded attempt that was played."""
        return self.episode_type.from_json({"seats": attempt.seats, "ended": attempt.ended, **attempt.episode})

    def saved(self, attempt: AttemptRecord) -> Scored:
        """Episode and verdict of a recorded attempt that has a verdict."""
        assert attempt.verdict is not None
        return Scored(self.saved_episode(attempt), attempt.verdict)

    def set_metrics(self, rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
        """The metrics of a whole set, such as the share of stories whose questions are all answered right.

        With a `set_headline` their mean is the score of the set. Then the rows should decide which metrics are defined,
        and not the answers, so that all models are scored by the same metrics; and every metric must lie within the
        range of `set_headline`. Without one, table and report show them beside the score, and all outcomes have a
        verdict.

        Args:
            rows: the number of rows in the set; `Outcome.place` numbers them.
            outcomes: samples of these rows, at least one for each.
        """
        return ()

    def summarize(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Set-level metrics of the episodes with a verdict: the mean of the reward and of every metric they report."""
        verdicts = [verdict for _, verdict in scored]
        names = dict.fromkeys(name for verdict in verdicts for name in verdict.metrics)
        means = {name: statistics.fmean(v.metrics[name] for v in verdicts if name in v.metrics) for name in names}
        if verdicts:
            means["reward"] = statistics.fmean(v.reward for v in verdicts)
        return means
