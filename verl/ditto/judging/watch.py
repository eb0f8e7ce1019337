"""What the judges cost and whether they work, step by step: the reasons to stop a run early.

A run stops with an error when too many sessions of a step lost their judge or an endpoint's circuit breaker tripped,
and without one when the budget does not cover another step. In both cases the trainer saves a checkpoint first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from ditto.judging import limits as judge_limits
from ditto.run.step_metrics import failures_by_cause, judge_failure
from ditto.settings import Settings
from soul.errors import RunFailed
from soul.judge.ledger import Ledger, money
from soul.record import SessionRecord


class JudgeOutage(RunFailed):
    """The judge is down, or failed in more of a step's sessions than `judge.max_failure_rate` allows."""


class BudgetSpent(Exception):
    """`judge.budget_usd` does not cover another step: the run ends early, as configured."""


class JudgeWatch:
    """Follows the judges over a run.

    Attributes:
        stop: why the run should end after this step; None while it should go on.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stop: JudgeOutage | BudgetSpent | None = None
        self._ledger = Ledger.load(settings.ledger_file)
        self._at_step_start = self._ledger.total().cost_usd
        self._trained = False  # whether a step has ended since the start
        self._limits: Any = None

    def start(self) -> None:
        """Find the actor that holds the run's limits."""
        self._limits = ray.get_actor(judge_limits.NAME)

    def after_step(self, step: int, traces: Sequence[SessionRecord]) -> dict[str, float]:
        """Count a step's sessions, decide on `stop`.

        Returns:
            The step's metrics of this file: the share of sessions that lost a judge, and the run's cost so far.
        """
        self._count(traces)
        self._trained = True
        lost = failures_by_cause(traces)
        share = sum(lost.values()) / len(traces)
        if outage := self._outage(traces):
            self.stop = JudgeOutage(
                f"Step {step}: {outage} A checkpoint of this step is saved; run the same command again once the "
                "endpoint answers."
            )
        spent = self._ledger.total().cost_usd
        if self.stop is None or lost.get("budget"):
            self._check_budget(step, needed=spent - self._at_step_start)
        self._at_step_start = spent
        return {"judge/failure_share": share, "judge/spent_usd": spent}

    def after_validation(self, traces: Sequence[SessionRecord]) -> None:
        """Count a validation's sessions, decide on `stop`.

        Raises:
            JudgeOutage: too many sessions lost their judge, and no step has been trained since the start: there is
                nothing to save.
        """
        self._count(traces)
        if failures_by_cause(traces)["budget"]:
            return  # the next step ends the run as planned
        outage = self._outage(traces)
        if outage and not self._trained:
            raise JudgeOutage(
                f"Validation before the first step: {outage} No step was trained. Run the same command again once the "
                "endpoint answers."
            )
        if outage and self.stop is None:
            self.stop = JudgeOutage(
                f"Validation: {outage} A checkpoint is saved; run the same command again once the endpoint answers."
            )

    def _outage(self, traces: Sequence[SessionRecord]) -> str | None:
        """Why judging cannot go on after these sessions; None where it can."""
        lost = failures_by_cause(traces)
        share = lost.total() / len(traces)
        state: judge_limits.State = ray.get(self._limits.state.remote())
        judge = self.settings.gateway
        if state.outage is not None:
            return f"{state.outage}. {share:.0%} of {len(traces)} sessions lost their judge."
        if share <= judge.policy.max_failure_rate:
            return None
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(lost.items()))
        last = next(f.detail for t in reversed(traces) if (f := judge_failure(t)))
        return (
            f"the judge failed in {share:.0%} of {len(traces)} sessions, more than "
            f"judge.max_failure_rate={judge.policy.max_failure_rate:.0%} ({causes}). Endpoint: {judge.judge.name}. "
            f"Last cause: {last.rstrip('.')}."
        )

    def _count(self, traces: Sequence[SessionRecord]) -> None:
        for trace in traces:
            self._ledger.add(trace.task, trace.usage)
        self._ledger.save(self.settings.ledger_file)

    def _check_budget(self, step: int, needed: float) -> None:
        budget = self.settings.gateway.policy.budget_usd
        total = self._ledger.total()
        if budget is not None and total.cost_usd + needed >= budget:
            self.stop = BudgetSpent(
                f"Step {step}: {money(total)} of judge.budget_usd=${budget:,.2f} are spent, and a step costs about "
                f"${needed:,.2f}. The run is saved and ends here; raise judge.budget_usd and run the same command "
                "again to go on."
            )
