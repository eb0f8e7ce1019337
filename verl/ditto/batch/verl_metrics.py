"""verl's own metrics of a step (`critic/*`, `response_length/*`, `timing_s/*`, ...), from the trainer's columns.

verl would fetch six columns of the whole step from the queue again and pad them to the longest row. The trainer has
just made these columns, so verl's functions get them as they are: flat, and without padding rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.metric_utils import compute_data_metrics, compute_throughout_metrics, compute_timing_metrics

from ditto.batch.sequence_record import SequenceRecord


def step_metrics(
    tags: Sequence[Mapping[str, Any]],
    records: Sequence[SequenceRecord],
    advantages: torch.Tensor,
    mask: torch.Tensor,
    timing: Mapping[str, float],
    gpus: int,
) -> dict[str, Any]:
    """The metrics of one step.

    Args:
        tags: verl's tags of every row: `prompt_len`, `response_len`, and `is_padding` for padding rows.
        records: of every row.
        advantages, mask: jagged columns of all rows; 1 in the mask where the policy sampled the token.
        timing: seconds by phase, with "step".
        gpus: devices of the run.
    """
    real = np.array([not tag.get("is_padding", False) for tag in tags])
    if not real.any():
        real = np.ones(len(tags), dtype=bool)

    def lengths(name: str) -> torch.Tensor:
        return torch.tensor([float(tag[name]) for tag in tags])

    rows = torch.from_numpy(real)
    scores = torch.tensor([record.reward for record in records], dtype=torch.float32)[rows, None]
    batch = SimpleNamespace(
        batch={
            "token_level_scores": scores,
            "token_level_rewards": scores,
            "advantages": advantages.values(),  # padding rows have an empty mask
            "returns": advantages.values(),
            "response_mask": mask.values(),
            "prompt_length": lengths("prompt_len")[rows],
            "response_length": lengths("response_len")[rows],
            # Only their width is read: the longest prompt and the longest response of the step.
            "prompts": torch.empty(0, int(lengths("prompt_len").max())),
            "responses": torch.empty(0, int(lengths("response_len").max())),
        },
        non_tensor_batch={"__num_turns__": np.asarray([record.turns for record in records], dtype=np.int32)[real]},
    )
    all_rows = SimpleNamespace(
        batch={"prompt_length": lengths("prompt_len"), "response_length": lengths("response_len")},
        meta_info={"global_token_num": [int(tag["seq_len"]) for tag in tags]},
    )
    metrics: dict[str, Any] = compute_data_metrics(batch=batch, use_critic=False)
    metrics |= compute_timing_metrics(batch=all_rows, timing_raw=dict(timing))
    metrics |= compute_throughout_metrics(batch=all_rows, timing_raw=dict(timing), n_gpus=gpus)
    return metrics


def staleness_metrics(tags: Sequence[Mapping[str, Any]], step: int) -> dict[str, float]:
    """Over how many versions of the weights each sequence was sampled, and how many it lags behind; verl's names."""
    real = [tag for tag in tags if not tag.get("is_padding", False)]
    first, last = (np.array([int(tag[f"{end}_global_steps"]) for tag in real]) for end in ("min", "max"))
    columns = {
        "trajectory_spans": last - first + 1,
        "trajectory_staleness": step - 1 - last,
        "trajectory_staleness_worst": step - 1 - first,
    }
    return {
        f"training/off_policy/{name}/{kind}": float(getattr(values, kind)())
        for name, values in columns.items()
        for kind in ("mean", "max", "min")
    }
