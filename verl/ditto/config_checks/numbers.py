"""Which numbers each key takes: its bounds, whether it is an integer, whether it may be null."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Number:
    """The numbers that a key takes. NaN and infinity are never valid.

    Attributes:
        least: the smallest valid value.
        most: the largest valid value.
        above: in place of `least`: values must be greater than this.
        whole: only integers are valid.
        null: null is valid too.
        but_not: one value between the bounds that is not valid.
        word: a word that is valid too.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    whole: bool = False
    null: bool = False
    but_not: float | None = None
    word: str | None = None

    def takes(self, value: Any) -> bool:
        """Whether a key of this type may hold the value."""
        if value is None:
            return self.null
        if isinstance(value, str):
            return value == self.word
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and value != self.but_not
        )

    def __str__(self) -> str:
        words = ["a whole number" if self.whole else "a number"]
        if self.above is not None:
            words.append(f"above {_plain(self.above)}")
        if self.least is not None:
            words.append(f"from {_plain(self.least)}")
        if self.most is not None:
            words.append(f"up to {_plain(self.most)}")
        if self.but_not is not None:
            words.append(f"but not {_plain(self.but_not)}")
        if len(words) > 1 and words[-1].startswith("from"):
            words[-1] += " on"
        others = [other for other in (self.word, "null" if self.null else None) if other]
        return " ".join(words) + "".join(f", or {other}" for other in others)


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


FINITE = Number()
COUNT = Number(1, whole=True)
COUNT_OR_NULL = Number(1, whole=True, null=True)
FROM_ZERO = Number(0, whole=True)
NOT_NEGATIVE = Number(0)
POSITIVE = Number(above=0)
POSITIVE_OR_NULL = Number(above=0, null=True)
SHARE = Number(0, 1)
PART = Number(above=0, most=1)  # a share that cannot be 0
SEED = Number(0, 2**32 - 1, whole=True)
TOKENS = Number(1, 10_000_000, whole=True)
TOKENS_OR_NULL = Number(1, 10_000_000, whole=True, null=True)
DEVICES = Number(1, 64, whole=True)  # of one node
FREQUENCY = Number(-1, whole=True)  # every so many steps; 0 and -1: never
LIMIT = Number(-1, whole=True, but_not=0)  # -1: no limit

# Tables: the keys of a section, separated by spaces -> the numbers that each of them takes.
OPTIMIZER = {
    "lr": PART,
    "weight_decay num_cycles": NOT_NEGATIVE,
    "clip_grad": POSITIVE,
    "lr_warmup_steps_ratio min_lr_ratio": SHARE,
    "lr_warmup_steps": Number(-1, whole=True),  # -1: from lr_warmup_steps_ratio
}
ENGINE = {"fsdp_size": LIMIT, "seed": SEED, "entropy_from_logits_chunk_size pad_to_length_bucket": COUNT}
LORA = {"lora_rank": Number(0, 512, whole=True), "lora_alpha": COUNT}  # 512: vLLM's maximum
TRAINER = {
    "nnodes total_epochs": COUNT,
    "n_gpus_per_node": DEVICES,
    "total_training_steps": COUNT_OR_NULL,  # null: total_epochs passes over the rows
    "save_freq test_freq": FREQUENCY,
}


def below(section: str, table: dict[str, Number]) -> dict[str, Number]:
    """A section's table, key by key, with the section's name in front of each key."""
    return {f"{section}.{key}".lstrip("."): number for keys, number in table.items() for key in keys.split()}


_ACTOR, _REF, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{name}" for name in ("actor", "ref", "rollout", "model"))

RL_NUMBERS: dict[str, Number] = {
    **below(f"{_ACTOR}.optim", OPTIMIZER),
    **below(f"{_ACTOR}.fsdp_config", ENGINE),
    **below(f"{_REF}.fsdp_config", ENGINE),
    **below(_MODEL, LORA),
    **below(
        _ACTOR,
        {
            "ppo_mini_batch_size ppo_epochs entropy_from_logits_chunk_size": COUNT,
            "ppo_max_token_len_per_gpu": TOKENS_OR_NULL,  # null on a CPU
            "clip_ratio": SHARE,
            "clip_ratio_low": Number(0, 1, null=True),
            "clip_ratio_high": Number(0, null=True),
            "clip_ratio_c": Number(above=1),  # bounds the ratio when the advantage is negative (dual clip)
            "tau_pos tau_neg": POSITIVE,
            "policy_loss.dro_beta loss_scale_factor": POSITIVE_OR_NULL,
            "entropy_coeff": FINITE,
            "kl_loss_coef": NOT_NEGATIVE,
            "data_loader_seed": SEED,
        },
    ),
    **below(_REF, {"log_prob_max_token_len_per_gpu": TOKENS_OR_NULL, "entropy_from_logits_chunk_size": COUNT}),
    **below(
        _ROLLOUT,
        {
            "n val_kwargs.n max_num_seqs agent.num_workers": COUNT,
            "tensor_model_parallel_size data_parallel_size expert_parallel_size": COUNT,
            # null on a CPU: chosen by memory/cpu.py
            "checkpoint_engine.update_weights_bucket_megabytes engine_kwargs.vllm.kv_cache_memory_bytes": COUNT_OR_NULL,
            "temperature": POSITIVE,  # not 0: log-probs are computed at the sampling temperature
            "val_kwargs.temperature": NOT_NEGATIVE,
            "top_k val_kwargs.top_k": LIMIT,
            "top_p val_kwargs.top_p": PART,
            "seed": SEED,
            "gpu_memory_utilization": PART,  # vLLM's share of a device's memory
            "nnodes": FROM_ZERO,
            "n_gpus_per_node": DEVICES,
            "max_num_batched_tokens": TOKENS,
            "log_prob_max_token_len_per_gpu": TOKENS_OR_NULL,
            "max_model_len": Number(1, 30_000_000, whole=True, null=True),
            "prometheus.port": FROM_ZERO,
        },
    ),
    **below(
        "data",
        {
            "train_batch_size": COUNT,
            "train_max_samples val_max_samples": LIMIT,
            "val_batch_size mixture.rows_per_task mixture.val_rows_per_task": COUNT_OR_NULL,
            "max_prompt_length max_response_length": TOKENS_OR_NULL,
            "max_feedback_length": Number(0, 10_000_000, whole=True, null=True),
            "max_turn_length": TOKENS,
            "seed mixture.seed": SEED,
            "dataloader_num_workers": FROM_ZERO,
        },
    ),
    **below("trainer", TRAINER),
    **below(
        "trainer",
        {
            "max_actor_ckpt_to_keep": COUNT_OR_NULL,
            "log_val_generations": FROM_ZERO,
            "v1.colocate_async.num_warmup_batches v1.separate_async.num_warmup_batches": NOT_NEGATIVE,
            "v1.separate_async.parameter_sync_step": COUNT,
            "v1.sampler.max_off_policy_threshold": COUNT_OR_NULL,  # null: rollouts of any age are trained
        },
    ),
    **below(
        "algorithm",
        {
            "feedback_coef std_floor": NOT_NEGATIVE,
            "shaping_gamma sdpo.ratio_clip distill.ratio_clip": POSITIVE,
            "sdpo.alpha sdpo.weight distill.alpha": SHARE,
            "sdpo.teacher_rate": PART,
            "erl.threshold": FINITE,
            "sdpo.top_k distill.top_k": COUNT_OR_NULL,
            "filter_groups.max_num_gen_batches": Number(2, whole=True),
        },
    ),
    **below("refine", {"max_feedback_chars": COUNT}),
    **below(
        "",
        {
            "run.save_on_signal_s": NOT_NEGATIVE,
            "run.max_invalid_share": SHARE,
            "run.phase_timeout_s": POSITIVE,
            "refine.episode_deadline_s run.max_logprob_diff memory.gpu_gib": POSITIVE_OR_NULL,
            "run.logged_sessions": Number(0, whole=True),
            "run.max_unchanged_syncs ray_kwargs.ray_init.num_cpus": COUNT_OR_NULL,
        },
    ),
}
