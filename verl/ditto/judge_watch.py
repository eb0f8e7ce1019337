"""What the judges cost and whether they work, step by step: the reasons to stop a run early.

A run stops with an error when too many sessions of a step lost their judge or an endpoint's circuit breaker tripped,
and without one when the budget does not cover another step. In both cases the trainer saves a checkpoint first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from agents.judge.ledger import Ledger, money
from ditto import judge_limits
from ditto.settings import Settings
from ditto.step_metrics import Trace, failures_by_cause, judge_failure


class JudgeOutage(RuntimeError):
    """The judge is down, or failed in more of a step's sessions than `judge.max_failure_rate` allows."""


class BudgetSpent(Exception):
    """`judge.budget_usd` does not cover another step: the run ends early, as it was told to."""


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
        self._limits: Any = None

    def start(self) -> None:
        """Find the actor that holds the run's limits."""
        self._limits = ray.get_actor(judge_limits.NAME)

    def after_step(self, step: int, traces: Sequence[Trace]) -> dict[str, float]:
        """Count a step's sessions, decide on `stop`.

        Returns:
            The step's metrics of this file: the share of sessions that lost a judge, and the run's cost so far.
        """
        self._count(traces)
        lost = failures_by_cause(traces)
        share = sum(lost.values()) / len(traces)
        state: judge_limits.State = ray.get(self._limits.state.remote())
        judge = self.settings.gateway
        if state.outage is not None:
            self.stop = JudgeOutage(
                f"Step {step}: {state.outage}. {share:.0%} of this step's {len(traces)} sessions lost their judge. A "
                "checkpoint of this step is saved; run the same command again once the endpoint answers."
            )
        elif share > judge.policy.max_failure_rate:
            causes = ", ".join(f"{cause} {count}" for cause, count in sorted(lost.items()))
            last = next(f["detail"] for t in reversed(traces) if (f := judge_failure(t)))
            self.stop = JudgeOutage(
                f"Step {step}: the judge failed in {share:.0%} of {len(traces)} sessions, more than "
                f"judge.max_failure_rate={judge.policy.max_failure_rate:.0%} ({causes}). Endpoint: {judge.judge.name}. "
                f"Last cause: {last}. A checkpoint of this step is saved; run the same command again once the endpoint "
                "answers."
            )
        spent = self._ledger.total().cost_usd
        if self.stop is None or lost.get("budget"):
            self._check_budget(step, needed=spent - self._at_step_start)
        self._at_step_start = spent
        return {"judge/failure_share": share, "judge/spent_usd": spent}

    def after_validation(self, traces: Sequence[Trace]) -> None:
        """Count a validation's sessions."""
        self._count(traces)

    def _count(self, traces: Sequence[Trace]) -> None:
        for trace in traces:
            self._ledger.add_trace(trace)
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
