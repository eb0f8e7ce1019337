"""Watch the sessions of each step, and the judges' cost and health, and decide whether to stop the run early.

A run stops with an error if the judge failed in too many of a step's sessions, if too many drafts failed for whatever
cause, or if an endpoint's circuit breaker gave up. It stops without an error if the budget does not cover another step.
In all cases the trainer first saves a checkpoint.

Every `judge.drift_every` steps the judges grade honest replies again (`soul.judge.audit.drift`).
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ditto.judging import actor as judge_actor
from ditto.run.step_metrics import failures_by_cause, judge_failure
from ditto.settings import Settings
from soul import tasks
from soul.errors import RunFailed
from soul.evaluate.run.settings import answer_settings
from soul.files.whole_file import write_whole
from soul.judge.audit import drift
from soul.judge.ledger import Ledger, money
from soul.record import SessionRecord

logger = logging.getLogger(__name__)
DRIFT = "judge_drift.json"  # the first grades of each judge, and what each check found
DETAIL_CHARACTERS = 600  # of the last failure in a message: a traceback says most at its end


class JudgeOutage(RunFailed):
    """The judge is down, or failed in more of a step's sessions than `judge.max_failure_rate` allows."""


class InvalidDrafts(RunFailed):
    """More of a step's drafts failed, for whatever cause, than `run.max_invalid_share` allows."""


class BudgetSpent(Exception):
    """`judge.budget_usd` does not cover another step: the run ends early, as configured."""


class JudgeWatch:
    """Follows the judges during a run.

    Attributes:
        stop: why the run should end after this step; None while it should continue.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stop: JudgeOutage | InvalidDrafts | BudgetSpent | None = None
        self._ledger = Ledger.load(settings.ledger_file)
        self._at_step_start = self._ledger.total().cost_usd
        self._trained = False  # whether a step has ended since this start

    def after_step(self, step: int, traces: Sequence[SessionRecord]) -> dict[str, float]:
        """Add a step's sessions to the ledger and decide whether to stop.

        Returns:
            Metrics: the share of sessions (0 to 1) in which a judge failed, the run's cost so far in US dollars, and
            those of a check of drift.
        """
        lost, problem = failures_by_cause(traces), self._problem(traces)
        numbers = {} if problem else self._check_drift(step, traces)
        self._count(traces)
        self._trained = True
        if problem:
            kind, text = problem
            self.stop = kind(f"Step {step}: {text} A checkpoint of this step is saved.")
        elif lost:
            logger.warning(
                "Step %d: the judge failed in %d of %d sessions (%s)", step, lost.total(), len(traces), _causes(lost)
            )
        spent = self._ledger.total().cost_usd
        if self.stop is None or lost.get("budget"):
            self._check_budget(step, needed=spent - self._at_step_start)
        self._at_step_start = spent
        return numbers | {"judge/failure_share": lost.total() / len(traces), "judge/spent_usd": spent}

    def _check_drift(self, step: int, traces: Sequence[SessionRecord]) -> dict[str, float]:
        """Let every judge of these sessions grade the replies anew, if that is due or it never did; its metrics."""
        every, file = self.settings.gateway.policy.drift_every, self.settings.run_dir / DRIFT
        judged = {trace.task for trace in traces if tasks.load(trace.task).calls_per_episode.get("judge")}
        if every is None or not judged:
            return {}
        gateway = judge_actor.remote_gateway(self.settings.gateway)
        judges = {judge.endpoint: judge for task in sorted(judged) for judge in gateway.scope(task).jury}
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"first": {}, "checks": []}
        found: list[tuple[float | None, str]] = []
        grades: list[Any] = []
        for endpoint, judge in judges.items():
            asked = json.dumps(answer_settings(endpoint), sort_keys=True)
            first = known["first"].get(asked)
            if drift.is_reference(first) and step % every:
                continue
            now = asyncio.run(drift.grade(judge))
            self._ledger.add(traces[0].task, {"drift": judge.usage})
            known["first"][asked] = first = first if drift.is_reference(first) else now
            change, text = drift.compare(endpoint.model, first, now)
            known["checks"].append({"step": step, "judge": endpoint.name, "change": change, "text": text})
            found.append((change, text))
            grades += now["grades"]
            if text:
                logger.warning("Step %d: %s", step, text)
        if not grades:
            return {}
        write_whole(file, json.dumps(known, indent=1))
        failed = Counter(one for one in grades if isinstance(one, str))
        numbers = {f"ditto/drift/failed/{cause}": count / len(grades) for cause, count in failed.items()}
        numbers["ditto/drift/changed"] = float(any(text for _, text in found))
        changes = [change for change, _ in found if change is not None]
        return numbers | ({"ditto/drift/change": max(changes, key=abs)} if changes else {})

    def after_validation(self, traces: Sequence[SessionRecord]) -> None:
        """Add a validation's sessions to the ledger and decide whether to stop."""
        self._count(traces)
        self._at_step_start = self._ledger.total().cost_usd  # what a validation costs is no part of a step's cost
        if failures_by_cause(traces)["budget"]:
            if self._trained and self.stop is None:
                self.stop = BudgetSpent(
                    "judge.budget_usd was spent during a validation. Raise it and run the same command again."
                )
            return  # before the first step: the step ends the run without an error
        if problem := self._problem(traces):
            kind, text = problem
            if not self._trained:
                raise kind(f"Validation before the first step: {text} No step was trained.")
            self.stop = self.stop or kind(f"Validation: {text} A checkpoint is saved.")

    def _problem(self, traces: Sequence[SessionRecord]) -> tuple[type[JudgeOutage] | type[InvalidDrafts], str] | None:
        """The reason why the run must stop after these sessions; None if it can go on."""
        lost, judge, run = failures_by_cause(traces), self.settings.gateway, self.settings.run
        share, outage = lost.total() / len(traces), judge_actor.state().outage
        again = "Run the same command again once the endpoint answers."
        if outage is not None:
            return JudgeOutage, f"{outage}. The judge failed in {share:.0%} of {len(traces)} sessions. {again}"
        if share > judge.policy.max_failure_rate:
            last = next(f.detail for t in reversed(traces) if (f := judge_failure(t)))
            return JudgeOutage, (
                f"the judge failed in {share:.0%} of {len(traces)} sessions, more than "
                f"judge.max_failure_rate={judge.policy.max_failure_rate:.0%} ({_causes(lost)}). Endpoint: "
                f"{judge.judge.name}. Last cause: {last.rstrip('.')}. {again}"
            )
        failed = [trace.draft.failure for trace in traces if trace.draft.failure]
        failed = [failure for failure in failed if failure.cause != "budget"]  # which ends a run without an error
        if len(failed) <= run.max_invalid_share * len(traces):
            return None
        causes = Counter(f"{failure.stage}/{failure.cause}" for failure in failed)
        detail = failed[-1].detail.strip().rstrip(".")
        return InvalidDrafts, (
            f"{len(failed) / len(traces):.0%} of {len(traces)} drafts failed ({_causes(causes)}), more than "
            f"run.max_invalid_share={run.max_invalid_share:.0%}. The last failure: {detail[-DETAIL_CHARACTERS:]}."
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
                f"Step {step}: {money(total)} of judge.budget_usd=${budget:,.2f} is spent, and a step costs about "
                f"${needed:,.2f}. A checkpoint is saved: raise judge.budget_usd and run the same command again."
            )


def _causes(lost: Counter[str]) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in sorted(lost.items()))
