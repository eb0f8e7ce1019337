"""Stop a run whose rollout engine does not sample from the trained weights.

A weight sync can fail silently: the call returns, but the engine keeps its old weights (verl issues 7495 and 7904, vLLM
issue 53888). Training then looks healthy but learns from another policy's samples. Two checks detect this:

- distance: actor and rollout engine compute log-probs of the same sampled tokens in the same context. With the same
  weights they differ only by rounding (0.01 to 0.03 per token in bfloat16, 3e-5 to 2e-3 in float32); with old weights
  the difference grows with every update. Its mean over a step is the metric `training/rollout_logprob_diff_mean`; if
  it exceeds `run.max_logprob_diff`, the run ends.
- no change: after an update and its sync, the engine's greedy answer to a fixed prompt must have other log-probs than
  before. This check needs no bound and detects a failure at once. The run ends after `run.max_unchanged_syncs` such
  syncs in a row (a single one can be rounding: a first warm-up step may be too small for bfloat16). A busy engine
  rounds differently with each batch that the prompt shares, so in asynchronous modes it is asked several times; one
  answer that was there before is enough.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import ray
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.utils.debug.metrics import calculate_debug_metrics

from ditto.batch.jagged import per_token
from ditto.batch.step_batch import StepBatch
from soul.errors import RunFailed
from verl import DataProto

PROBE_TEXT = "Ask me anything about the story, and I will answer as its main character would."
PROBE_TOKENS = 16
ASKS_OF_BUSY = 4  # how often an engine is asked that plays sessions meanwhile
logger = logging.getLogger(__name__)

# Mean absolute difference of log-probs that rounding alone never reaches, by the dtype that both engines compute in.
BOUND = {"float32": 0.05, "bfloat16": 0.1}

Answer = tuple[tuple[int, ...], tuple[float, ...]]  # greedy tokens and their log-probs


class WeightsOutOfSync(RunFailed):
    """The rollout engine samples from other weights than the trained ones."""


@dataclass
class SyncAlarm:
    """Watches a run's weight syncs.

    Attributes:
        bound: mean absolute difference of log-probs above which the run ends.
        max_unchanged: number of syncs in a row without any change after which the run ends; None: not checked.
    """

    bound: float
    max_unchanged: int | None = 3
    _answers: dict[str, Set[Answer]] = field(default_factory=dict)
    _unchanged: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: DictConfig) -> SyncAlarm:
        """Read `run.max_logprob_diff` (null: the bound of the rollout's dtype) and `run.max_unchanged_syncs`."""
        bound = config.run.max_logprob_diff
        if bound is None:
            dtype = str(config.actor_rollout_ref.rollout.dtype)
            bound = BOUND["float32"] if dtype in ("float32", "float") else BOUND["bfloat16"]
        return cls(float(bound), config.run.max_unchanged_syncs)

    def check_rollout(self, step: int, batch: StepBatch, versions: Sequence[int], policy: str = "") -> dict[str, float]:
        """Compare actor and rollout engine where both saw the same context. Returns the step's metrics of it.

        Args:
            batch: with the log-probs of both.
            versions: the step whose weights sampled each row.
            policy: whose rows these are, where a run trains several.

        Raises:
            WeightsOutOfSync: the engine samples from other weights.
        """
        columns, same_context = batch.columns, batch.is_measured("draft", "refined_feedback")
        assert columns is not None
        # In asynchronous modes rollouts of several versions meet; only the newest are by the actor's weights.
        newest = max((v for v, same in zip(versions, same_context, strict=True) if same), default=0)
        rows = [same and version == newest for same, version in zip(same_context, versions, strict=True)]
        difference, numbers = distance(columns.old_log_probs, columns.rollout_log_probs, columns.mask, rows)
        if difference is None:
            return numbers
        # The distance of older rollouts is no sign of a lost sync; `check_change` covers them.
        if newest >= step - 1 and difference > self.bound:
            raise WeightsOutOfSync(
                f"Step {step}{policy and f', policy {policy}'}: the log-probs of rollout engine and actor for the same "
                "tokens differ by "
                f"{difference:.3g} on average, more than {self.bound:g}: a weight sync was lost, or the two compute "
                "differently (temperature, top_p, precision, attention). Resume from a checkpoint before "
                "training/rollout_logprob_diff_mean rose, or raise run.max_logprob_diff if this is normal here."
            )
        return numbers | {"training/rollout_logprob_diff_mean": difference}

    def check_change(self, step: int, answers: Mapping[str, Set[Answer]], *, updated: bool) -> None:
        """Compare each server's answers with those after the previous sync.

        Args:
            answers: server -> its answers now.
            updated: whether the step changed any weight.

        Raises:
            WeightsOutOfSync: a server's answer has not changed over too many updates.
        """
        for server, now in answers.items():
            same = not now.isdisjoint(self._answers.get(server, frozenset()))
            self._unchanged[server] = (self._unchanged.get(server, 0) + updated) if same else 0
            self._answers[server] = now
            if self.max_unchanged is not None and self._unchanged[server] >= self.max_unchanged:
                raise WeightsOutOfSync(
                    f"Step {step}: {server} answers a fixed prompt with exactly the same log-probs as "
                    f"{self._unchanged[server]} updates ago: the weight syncs since then were lost, or the updates are "
                    "too small for its precision (then set run.max_unchanged_syncs=null)."
                )
            if same and updated:
                logger.warning("Step %d: the weight sync did not change the log-probs of %s", step, server)


def distance(
    old: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor, rows: Sequence[bool]
) -> tuple[float | None, dict[str, Any]]:
    """Return how much the actor's log-probs differ from the rollout engine's.

    Args:
        old: jagged float column, the actor's log-probs of the response tokens.
        sampled: the same from the rollout engine.
        mask: jagged int column, 1 where the policy sampled the token.
        rows: for every row, whether to include it.

    Returns:
        The mean absolute difference over the sampled tokens of these rows (None if there are none), and verl's metrics.
    """
    chosen = per_token(rows, mask) & mask.values().bool()
    if not chosen.any():
        return None, {}
    # verl's function takes padded rows: one row here.
    actor, rollout = old.values()[chosen][None], sampled.values()[chosen][None]
    columns = {"old_log_probs": actor, "rollout_log_probs": rollout}
    columns |= {"response_mask": torch.ones_like(actor, dtype=torch.bool), "responses": actor}
    metrics = calculate_debug_metrics(DataProto(batch=TensorDict(columns, batch_size=1)))
    return float((actor - rollout).abs().mean()), metrics


def ask(
    servers: Mapping[str, Any], prompt_ids: Sequence[int], times: int = 1, more: Mapping[str, Any] | None = None
) -> dict[str, Set[Answer]]:
    """Ask every rollout server (name -> verl's Ray actor) for its greedy answer to a prompt, so often.

    Args:
        more: sampling parameters besides: the adapter, where there are several.

    Returns:
        server -> its different answers.
    """
    sampling = {"temperature": 0.0, "max_tokens": PROBE_TOKENS, "ignore_eos": True, "logprobs": True, **(more or {})}
    answers: dict[str, set[Answer]] = {name: set() for name in servers}
    for _ in range(times):  # one after the other
        pending = {
            name: server.generate.remote(
                prompt_ids=list(prompt_ids), sampling_params=dict(sampling), request_id=f"sync_alarm_{uuid4().hex}"
            )
            for name, server in servers.items()
        }
        for name, reference in pending.items():
            answer = ray.get(reference)
            answers[name].add((tuple(answer.token_ids), tuple(answer.log_probs or ())))
    return {name: frozenset(found) for name, found in answers.items()}
