"""A step's metrics from its sequences: ours, and verl's own from the columns that the trainer has."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import kl_penalty
from verl.trainer.ppo.metric_utils import compute_data_metrics, compute_throughout_metrics, compute_timing_metrics

from ditto.batch.jagged import per_token
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import StepBatch


def sequences(step: StepBatch, *, teaches_feedback: bool) -> dict[str, float]:
    """Numbers and lengths of the sequences, and where a teacher scores drafts in the feedback context, their share."""
    valid = [record for record in step.sequences if record.valid]
    numbers = {"ditto/sequences": float(len(valid))}
    numbers["ditto/sequences_trained"] = float(sum(record.valid for record in step.records))
    for name, refined in {"draft": False, "refined": True}.items():
        sampled = [record for record in valid if record.refined is refined]
        if sampled:
            numbers[f"ditto/response_tokens_{name}"] = statistics.fmean(record.tokens for record in sampled)
    drafts = [record for record in valid if record.kind == "draft"]
    if teaches_feedback and drafts:
        numbers["ditto/share_taught"] = statistics.fmean(bool(record.teacher_prompt) for record in drafts)
    return numbers


def groups(counts: Counter[str]) -> dict[str, float]:
    """Count the groups and sequences of a step that have no learning signal, and what it saves on them.

    Args:
        counts: `groups` of the batch; `idle` ones, from which the objective learns nothing. With `algorithm.skip_idle`
            also the sequences without a forward pass, `skipped`, their `tokens_skipped`, and all `tokens` before.
    """
    numbers = {"ditto/groups": float(counts["groups"]), "ditto/groups_idle": float(counts["idle"])}
    if "skipped" in counts:
        numbers["ditto/sequences_skipped"] = float(counts["skipped"])
        numbers["ditto/share_tokens_skipped"] = counts["tokens_skipped"] / max(counts["tokens"], 1)
    return numbers


def context_gap(step: StepBatch) -> dict[str, float]:
    """Mean of log pi(y' | x, f) - log pi(y' | x) over refined sequences in the base context, summed over tokens."""
    refined, columns = step.is_measured("refined_base"), step.columns
    if columns is None or not any(refined):
        return {}
    gaps = columns.rollout_log_probs.values() - columns.old_log_probs.values()
    trained = per_token(refined, columns.mask) & columns.mask.values().bool()
    return {"ditto/context_logprob_gap": gaps[trained].sum().item() / sum(refined)}


def kl_to_start(step: StepBatch) -> dict[str, float]:
    """Estimates of KL(pi || reference) per token, from the drafts: of the policy before the step's first update."""
    if step.columns is None or step.reference is None:
        return {}
    mask = step.columns.mask
    drafts = per_token(step.is_measured("draft"), mask) & mask.values().bool()
    if not drafts.any():
        return {}
    old, start = step.columns.old_log_probs.values()[drafts], step.reference.values()[drafts]
    return {
        "ditto/kl_start": kl_penalty(old, start, "k3").mean().item(),
        "ditto/log_ratio_start": (old - start).mean().item(),
    }


def of_verl(
    tags: Sequence[Mapping[str, Any]],
    records: Sequence[SequenceRecord],
    advantages: torch.Tensor,
    mask: torch.Tensor,
    timing: Mapping[str, float],
    gpus: int,
) -> dict[str, Any]:
    """verl's own metrics of one step (`critic/*`, `response_length/*`, `timing_s/*`, ...).

    verl would fetch six columns of the whole step from the queue again and pad them to the longest row. Its functions
    get the trainer's columns as they are: flat, and without padding rows.

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
    rows = torch.from_numpy(real)
    prompts, responses = (torch.tensor([float(tag[name]) for tag in tags]) for name in ("prompt_len", "response_len"))
    scores = torch.tensor([record.reward for record in records], dtype=torch.float32)[rows, None]
    batch = SimpleNamespace(
        batch={
            "token_level_scores": scores,
            "token_level_rewards": scores,
            "advantages": advantages.values(),  # padding rows have an empty mask
            "returns": advantages.values(),
            "response_mask": mask.values(),
            "prompt_length": prompts[rows],
            "response_length": responses[rows],
            # Only their width is read: the longest prompt and the longest response of the step.
            "prompts": torch.empty(0, int(prompts.max())),
            "responses": torch.empty(0, int(responses.max())),
        },
        non_tensor_batch={"__num_turns__": np.asarray([record.turns for record in records], dtype=np.int32)[real]},
    )
    all_rows = SimpleNamespace(
        batch={"prompt_length": prompts, "response_length": responses},
        meta_info={"global_token_num": [int(tag["seq_len"]) for tag in tags]},
    )
    metrics: dict[str, Any] = compute_data_metrics(batch=batch, use_critic=False)
    metrics |= compute_timing_metrics(batch=all_rows, timing_raw=dict(timing))
    metrics |= compute_throughout_metrics(batch=all_rows, timing_raw=dict(timing), n_gpus=gpus)
    return metrics


def staleness(tags: Sequence[Mapping[str, Any]], step: int) -> dict[str, float]:
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
