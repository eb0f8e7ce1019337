"""Stop a run whose rollout engine does not sample from the weights that were trained.

A weight sync can fail in silence: the call returns, and the engine goes on with old weights (verl issues 7495 and 7904,
vLLM issue 53888). Training then looks healthy and learns from another policy's samples. Two signs give it away:

- distance: actor and rollout engine compute log-probs of the same sampled tokens in the same context. They differ by
  rounding alone (0.01 to 0.03 a token in bfloat16, 3e-5 to 2e-3 in float32) as long as both hold the same weights.
  Old weights drift away with every update. The mean over a step is `training/rollout_logprob_diff_mean`; above
  `run.max_logprob_diff` the run ends.
- no change: after a sync that follows a real update, the engine's greedy answer to a fixed prompt must have other
  log-probs than before it. This sign needs no bound and shows at once. `run.max_unchanged_syncs` such syncs in a row
  end the run (one alone can be rounding: a first warm-up step may move nothing that bfloat16 can hold).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import ray
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.utils.debug.metrics import calculate_debug_metrics

from ditto.batch.jagged import per_token
from soul.errors import RunFailed

PROBE_TEXT = "Ask me anything about the story, and I will answer as its main character would."
PROBE_TOKENS = 16
# Mean absolute difference of log-probs that rounding never reaches, by the precision that both engines compute in.
BOUND = {"float32": 0.05, "bfloat16": 0.1}

Answer = tuple[tuple[int, ...], tuple[float, ...]]  # greedy tokens and their log-probs


class WeightsOutOfSync(RunFailed):
    """The rollout engine samples from other weights than those that are trained."""


@dataclass
class SyncAlarm:
    """Watches a run's weight syncs.

    Attributes:
        bound: the mean absolute difference of log-probs above which the run ends.
        max_unchanged: syncs in a row after which nothing changed that end the run; None: not looked at.
    """

    bound: float
    max_unchanged: int | None = 3
    _answers: dict[str, Answer] = field(default_factory=dict)
    _unchanged: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: DictConfig) -> SyncAlarm:
        """`run.max_logprob_diff`, or the bound of the rollout's precision; `run.max_unchanged_syncs`."""
        bound = config.run.max_logprob_diff
        if bound is None:
            dtype = str(config.actor_rollout_ref.rollout.dtype)
            bound = BOUND["float32"] if dtype in ("float32", "float") else BOUND["bfloat16"]
        return cls(float(bound), config.run.max_unchanged_syncs)

    def check_distance(self, step: int, difference: float) -> None:
        """Compare a step's mean difference with the bound.

        Raises:
            WeightsOutOfSync: it is larger.
        """
        if difference > self.bound:
            raise WeightsOutOfSync(
                f"Step {step}: the rollout engine and the actor give the same tokens log-probs that differ by "
                f"{difference:.3g} on average, more than {self.bound:g}. Either a weight sync did not reach the "
                "engine, or both compute something else (temperature, top_p, precision, attention). "
                "Checkpoints of the last steps may have learned from samples of older weights: resume from one before "
                "training/rollout_logprob_diff_mean began to rise. If this distance is normal for your model, raise "
                "run.max_logprob_diff."
            )

    def check_change(self, step: int, answers: Mapping[str, Answer], *, updated: bool) -> None:
        """Compare what each server answers now with what it answered after the sync before.

        Args:
            answers: by server.
            updated: whether the step moved any weight.

        Raises:
            WeightsOutOfSync: a server's answers have not changed over too many updates.
        """
        for server, answer in answers.items():
            same = self._answers.get(server) == answer
            self._unchanged[server] = (self._unchanged.get(server, 0) + updated) if same else 0
            self._answers[server] = answer
            if self.max_unchanged is not None and self._unchanged[server] >= self.max_unchanged:
                raise WeightsOutOfSync(
                    f"Step {step}: {server} answers a fixed prompt with the very log-probs that it gave "
                    f"{self._unchanged[server]} updates ago. The weight syncs since then did not reach the engine, or "
                    "the updates are too small for its precision. run.max_unchanged_syncs=null switches this check off."
                )


def distance(
    old: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor, rows: Sequence[bool]
) -> tuple[float | None, dict[str, Any]]:
    """How far the actor's log-probs are from the rollout engine's.

    Args:
        old, sampled: jagged float columns: log-probs of the response tokens by the actor and by the rollout engine.
        mask: jagged int column, 1 where the policy sampled the token.
        rows: the rows to look at.

    Returns:
        The mean absolute difference over the sampled tokens of these rows, None without such tokens; verl's metrics.
    """
    chosen = per_token(rows, mask) & mask.values().bool()
    if not chosen.any():
        return None, {}
    actor, rollout = old.values()[chosen][None], sampled.values()[chosen][None]  # verl's function takes padded rows
    columns = {"old_log_probs": actor, "rollout_log_probs": rollout}
    columns |= {"response_mask": torch.ones_like(actor, dtype=torch.bool), "responses": actor}
    metrics = calculate_debug_metrics(DataProto(batch=TensorDict(columns, batch_size=1)))
    return float((actor - rollout).abs().mean()), metrics


def ask(servers: Mapping[str, Any], prompt_ids: Sequence[int]) -> dict[str, Answer]:
    """Every rollout server's greedy answer to a prompt, with log-probs.

    Args:
        servers: Ray actors of verl's rollout servers, by name.
    """
    sampling = {"temperature": 0.0, "max_tokens": PROBE_TOKENS, "ignore_eos": True, "logprobs": True}
    asked = {
        name: server.generate.remote(
            prompt_ids=list(prompt_ids), sampling_params=dict(sampling), request_id=f"sync_alarm_{uuid4().hex}"
        )
        for name, server in servers.items()
    }
    answers = {name: ray.get(reference) for name, reference in asked.items()}
    return {name: (tuple(a.token_ids), tuple(a.log_probs or ())) for name, a in answers.items()}
