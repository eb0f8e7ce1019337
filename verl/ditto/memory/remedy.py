"""Find the overrides that make a run fit. Each suggestion is verified: the plan is computed again with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from ditto.memory.phases import Computed
from ditto.memory.setup import KEYS, Setup

Change = dict[str, Any]  # fields of Setup
MOST_CHANGES = 3  # knobs that a remedy may change at once
TOKEN_STEP = 4096  # tokens between two suggested limits of a micro-batch


def remedy(computed: Computed, compute: Callable[[Setup], Computed], more_gpus: bool = True) -> Change | None:
    """The fewest and cheapest changes that make a run fit; None if there are none.

    Args:
        computed: the memory of the run that does not fit.
        compute: computes the memory of another setup.
        more_gpus: whether the remedy may use more GPUs.
    """
    cheap = _knobs(computed.setup)
    costly: list[list[Change]] = [] if computed.setup.offload_policy else [[{"offload_policy": True}]]
    costly += _more_gpus(computed.setup) if more_gpus else []

    def fitting(knobs: Sequence[list[Change]]) -> Change | None:
        for changes in product(*knobs):
            change: Change = {field: value for part in changes for field, value in part.items()}
            if not compute(replace(computed.setup, **change)).problems:
                return {field: value for field, value in change.items() if getattr(computed.setup, field) != value}
        return None

    for knobs in (cheap, cheap + costly):
        for count in range(1, MOST_CHANGES + 1):
            for chosen in combinations(knobs, count):
                # A knob's last value saves most, so if it does not help, no other does. vLLM's share is an exception.
                if fitting([knob if "utilization" in knob[0] else knob[-1:] for knob in chosen]):
                    return fitting(chosen)
    return None


def overrides(change: Change) -> list[str]:
    """A change as overrides for the command line."""
    return [f"{KEYS[field]}={str(value).lower()}" for field, value in change.items()]


def _knobs(setup: Setup) -> list[list[Change]]:
    """What may be changed, the cheapest knob first; each knob's values start with the mildest."""
    knobs: list[list[Change]] = []
    if not setup.fused_head:
        knobs.append([{"fused_head": True}])
    if not setup.checkpointing:
        knobs.append([{"checkpointing": True}])
    if not setup.frees_cache or not setup.sleep_mode:
        knobs.append([{"frees_cache": True, "sleep_mode": True}])
    if not (setup.param_offload and setup.optimizer_offload):
        knobs.append([{"param_offload": True, "optimizer_offload": True}])
    knobs.append([{"tokens": limit} for limit in _lower(setup.tokens, setup.max_model_len)])
    knobs.append([{"log_prob_tokens": limit} for limit in _lower(setup.log_prob_tokens, setup.max_model_len)])
    knobs.append([{"bucket_mib": mib} for mib in (1024, 512, 256) if mib < setup.bucket_mib])
    if setup.defer_gradients:
        knobs.append([{"defer_gradients": False}])
    knobs.append(_shares(setup))
    knobs.append([{"tensor_parallel": tp} for tp in (2, 4, 8) if tp > setup.tensor_parallel and setup.gpus % tp == 0])
    return [knob for knob in knobs if knob]


def _more_gpus(setup: Setup) -> list[list[Change]]:
    """More GPUs per node, then more nodes; each also with more GPUs per vLLM engine."""
    more: list[Change] = [{"gpus": gpus, "nodes": setup.nodes} for gpus in (2, 4, 8) if gpus > setup.gpus]
    more += [{"gpus": max(8, setup.gpus), "nodes": setup.nodes * factor} for factor in (2, 4, 8)]
    engines = (setup.tensor_parallel, *(tp for tp in (2, 4, 8) if tp > setup.tensor_parallel))
    return [[{**gpus, "tensor_parallel": tp} for gpus in more for tp in engines if gpus["gpus"] % tp == 0]]


def _lower(limit: int, longest: int) -> list[int]:
    """Lower token limits of a micro-batch. The lowest is the longest sequence, which must fit."""
    steps = range((limit - 1) // TOKEN_STEP * TOKEN_STEP, longest, -TOKEN_STEP)
    return [*steps, longest] if limit > longest else []


def _shares(setup: Setup) -> list[Change]:
    """Other shares of the GPU for vLLM, the nearest to today's first."""
    shares = [share / 20 for share in range(4, 19) if abs(share / 20 - setup.utilization) > 1e-6]
    return [{"utilization": share} for share in sorted(shares, key=lambda share: abs(share - setup.utilization))]
