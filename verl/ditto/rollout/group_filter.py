"""Replace the groups of a step without a learning signal: DAPO's dynamic sampling (arXiv 2503.14476, section 3.2).

With `algorithm.filter_groups.enable`, a prompt whose sessions move no weight is dropped as soon as its last session
ends, and the next prompt of the data is played in its place, so that a step trains on its full number of groups. The
objective decides, by the same plan that weighs the rows of a step (`batch/loss_plan.py`): under `grpo` a group whose
drafts have one reward gives no learning signal, under `ditto` it may teach through its refined answers.

A step plays at most `max_num_gen_batches` times its prompts. Beyond that, groups without a signal stay in the step,
which then trains with what there is; `ditto/groups_idle` counts them and a warning says so. While a judge is down or
the budget is spent nothing is replaced, because the next prompt would fail too.

A dropped group is replaced by one prompt. To ask for more at once and take those that end first would prefer short
answers.

verl's own filter knows only one number per sequence, so its buffer calls this module instead (`replay_buffer.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from ditto.batch.loss_plan import plan_losses
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import StepBatch
from ditto.run.step_metrics import failures
from ditto.settings import Settings
from soul.errors import SYSTEMIC
from soul.record import SessionRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Group:
    """A finished prompt that no batch has taken yet.

    Attributes:
        traces: the lines of its sessions.
        replaceable: it gives no learning signal, and another prompt could do better.
    """

    traces: list[str]
    replaceable: bool


class GroupFilter:
    """Decides which finished groups are replaced, and keeps what they cost.

    Attributes:
        limit: groups that may be dropped for one step because they give no learning signal.
        prompts: groups that one batch trains on.
    """

    def __init__(self, settings: Settings, loss_agg_mode: str, limit: int, prompts: int) -> None:
        self.limit, self.prompts = limit, prompts
        self._settings, self._mode = settings, loss_agg_mode
        self._groups: dict[str, _Group] = {}
        self._dropped = Counter[str](dropped=0, tokens_dropped=0)
        self._traces: list[SessionRecord] = []

    @classmethod
    def from_config(cls, config: DictConfig, settings: Settings, prompts: int) -> GroupFilter | None:
        """The filter of a run; None if `algorithm.filter_groups` is off."""
        options = config.algorithm.filter_groups
        if not options.enable:
            return None
        limit = (int(options.max_num_gen_batches) - 1) * prompts
        return cls(settings, config.actor_rollout_ref.actor.loss_agg_mode, limit, prompts)

    def unknown(self, finished: Collection[str]) -> set[str]:
        """The finished groups that `judge` has not seen; forgets groups that are gone."""
        self._groups = {prompt: group for prompt, group in self._groups.items() if prompt in finished}
        return set(finished) - set(self._groups)

    def judge(self, prompt: str, extra_fields: Sequence[dict[str, Any]]) -> None:
        """Find out from the sequences in the queue whether a finished group gives a learning signal."""
        records = [SequenceRecord(**fields["ditto"]) for fields in extra_fields]
        objective, options = self._settings.objective, self._settings.options
        planned = plan_losses(records, [0] * len(records), objective, options, self._mode)
        teaches = any(record.loss.learns for record in planned)
        lines = [fields["trace"] for fields in extra_fields if "trace" in fields]
        replaceable = not teaches and not any(
            failure.cause in SYSTEMIC for line in lines for failure in failures(_session(line))
        )
        self._groups[prompt] = _Group(lines, replaceable)

    def to_drop(self, age: dict[str, int]) -> set[str]:
        """The groups to replace now, the oldest first (prompt -> the step that asked for it), up to the limit."""
        idle = (prompt for prompt, group in self._groups.items() if group.replaceable)
        oldest_first = sorted(idle, key=lambda prompt: (age.get(prompt, 0), prompt))
        return set(oldest_first[: max(self.limit - self._dropped["dropped"], 0)])

    def drop(self, prompts: Collection[str]) -> None:
        """Count groups that leave the queue untrained, because others take their place."""
        for prompt in prompts:
            self._dropped.update(dropped=1)
            for trace in map(_session, self._groups.pop(prompt).traces):
                self._dropped.update(tokens_dropped=trace.sampled_tokens)
                trace.dropped = True
                for summary in trace.sequences:
                    summary.masked = summary.masked or "group replaced"
                self._traces.append(trace)

    def report(self, batch: StepBatch, step: int) -> None:
        """Add what was dropped for this batch to its counts and traces; the next batch starts from nothing."""
        dropped = self._dropped["dropped"]
        batch.groups.update(self._dropped)
        batch.traces += self._traces
        self._dropped, self._traces = Counter(dropped=0, tokens_dropped=0), []
        if dropped >= self.limit and batch.groups["idle"]:
            logger.warning(
                "Step %d: %d groups gave no learning signal and were replaced, all that algorithm.filter_groups."
                "max_num_gen_batches allows: see ditto/groups_idle, and choose prompts on which drafts differ.",
                step,
                dropped,
            )


def _session(line: str) -> SessionRecord:
    return SessionRecord.from_line(line, "a finished group's trace")
