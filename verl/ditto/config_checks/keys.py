"""Which code reads each key of the config.

verl's config has a thousand keys, and many are read only by code that this trainer does not run: verl's older trainer,
other engines, other rollout servers, its critic. An override of such a key would be accepted and change nothing. So
each key is in one of four tables:

    READ_BY_VERL    read by verl's trainer, actor, rollout or queue; every value that verl accepts works
    READ_BY_DITTO   read by our own code, perhaps in place of verl's
    OUTSIDE         names, paths, logging, profiling, machines: has no effect on what is trained
    FIXED           must keep its default; `fixed_keys.py` has the reason and what to use instead

A key in none of them is treated as fixed, and `tests/ditto/config_checks/test_config_keys.py` fails until it is added,
so a new version of verl cannot introduce a key that is silently ignored. `value_rules.py` refuses wrong values of keys
that are read.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache

from ditto.config_checks.fixed_keys import FIXED


class Reader(Enum):
    """Which code reads a key."""

    VERL = "verl"
    DITTO = "ditto"
    OUTSIDE = "no code that trains"
    FIXED = "no code of this trainer"


# What an FSDP engine reads, for the actor and for the reference policy (verl/workers/engine/fsdp/transformer_impl.py).
_ENGINE = (
    "param_offload optimizer_offload offload_policy reshard_after_forward fsdp_size forward_prefetch model_dtype seed "
    "full_determinism entropy_from_logits_with_chunking entropy_from_logits_chunk_size use_torch_compile "
    "entropy_checkpointing use_no_sync_for_gradient_accumulation pad_to_length pad_to_length_bucket mixed_precision.* "
    "wrap_policy.transformer_layer_cls_to_wrap"
)

# section -> its keys, space-separated; `name.*` is everything below a name
READ_BY_VERL: dict[str, str] = {
    "actor_rollout_ref.actor": (
        "ppo_max_token_len_per_gpu clip_ratio clip_ratio_low clip_ratio_high tau_pos tau_neg clip_ratio_c "
        "loss_scale_factor entropy_coeff use_kl_loss kl_loss_coef kl_loss_type "
        # fsdp_config takes these by interpolation
        "entropy_from_logits_with_chunking entropy_from_logits_chunk_size entropy_checkpointing pad_to_length"
    ),
    "actor_rollout_ref.actor.policy_loss": "loss_mode dro_beta",
    "actor_rollout_ref.actor.optim": (
        "optimizer optimizer_impl lr lr_warmup_steps_ratio lr_warmup_steps weight_decay betas clip_grad min_lr_ratio "
        "num_cycles lr_scheduler_type zero_indexed_step warmup_style override_optimizer_config.*"
    ),
    "actor_rollout_ref.actor.fsdp_config": _ENGINE,
    "actor_rollout_ref.actor.checkpoint": "load_contents",
    "actor_rollout_ref.ref": (
        "log_prob_max_token_len_per_gpu entropy_from_logits_with_chunking entropy_from_logits_chunk_size "
        "entropy_checkpointing pad_to_length"
    ),
    "actor_rollout_ref.ref.fsdp_config": _ENGINE,
    "actor_rollout_ref.rollout": (
        "temperature top_k top_p full_determinism seed dtype gpu_memory_utilization ignore_eos enforce_eager "
        "cudagraph_capture_sizes free_cache_engine enable_sleep_mode tensor_model_parallel_size data_parallel_size "
        "expert_parallel_size max_num_batched_tokens max_model_len max_num_seqs enable_chunked_prefill "
        "enable_prefix_caching scheduling_policy load_format layered_summon log_prob_max_token_len_per_gpu "
        "engine_kwargs.vllm.* quantization quantization_config_file limit_images nnodes n_gpus_per_node"
    ),
    "actor_rollout_ref.rollout.val_kwargs": "top_k top_p temperature n",
    "actor_rollout_ref.rollout.checkpoint_engine": "update_weights_bucket_megabytes",
    "actor_rollout_ref.model": (
        "use_shm trust_remote_code external_lib override_config.attn_implementation enable_gradient_checkpointing "
        "enable_activation_offload use_remove_padding lora_rank lora_alpha target_modules "
        "exclude_modules lora_adapter_path use_liger use_fused_kernels fused_kernel_options.impl_backend lora.merge "
        "lora.fully_sharded_loras"
    ),
    "data": "shuffle seed val_batch_size validation_shuffle",
    "algorithm.rollout_correction": "rollout_is rollout_is_threshold rollout_is_batch_normalize",
    "trainer": "nnodes n_gpus_per_node save_freq val_before_train val_only test_freq total_epochs device",
    "trainer.v1.colocate_async": "num_warmup_batches",
    "trainer.v1.separate_async": "num_warmup_batches parameter_sync_step",
    "trainer.v1.sampler": "max_off_policy_threshold max_off_policy_strategy custom_sampler.path custom_sampler.name",
}

READ_BY_DITTO: dict[str, str] = {
    "actor_rollout_ref.actor": "ppo_mini_batch_size ppo_epochs loss_agg_mode calculate_entropy data_loader_seed",
    "actor_rollout_ref.actor.checkpoint": "save_contents save_lora_only",
    "actor_rollout_ref.rollout": "n",
    "actor_rollout_ref.model": "path custom_chat_template override_config.attention_dropout",
    "algorithm": (
        "objective agent_version feedback_coef old_logp refined_old_logp norm_adv_by_std_in_grpo "
        "std_floor skip_idle prefix_tree filter_groups.enable filter_groups.max_num_gen_batches "
        "shaping_gamma erl.* "
        "sdpo.* distill.*"
    ),
    "data": (
        "train_files val_files train_max_samples val_max_samples train_batch_size max_prompt_length "
        "max_feedback_length max_response_length max_turn_length allow_overlap filter_overlong_prompts "
        "apply_chat_template_kwargs.* mixture.*"
    ),
    "trainer": (
        "total_training_steps resume_mode resume_from_path resume_changed default_local_dir max_actor_ckpt_to_keep "
        "upload_to v1.trainer_mode"
    ),
    # our own sections; a pydantic model validates each of them
    "judge": "*",
    "feedback": "*",
    "partner": "*",
    "environment": "*",
    "refine": "*",
    "run": "*",
    "tasks": "*",
    "memory": "*",
    "": "dry_run",
}

OUTSIDE: dict[str, str] = {
    "actor_rollout_ref.actor": "profiler.*",
    "actor_rollout_ref.ref": "profiler.*",
    "actor_rollout_ref.rollout": "profiler.* prometheus.* disable_log_stats router_config_path agent.num_workers",
    "data": "dataloader_num_workers",
    "trainer": (
        "project_name experiment_name logger log_val_generations validation_data_dir"  # display only
    ),
    "global_profiler": "*",
    "transfer_queue": "*",
    "ray_kwargs": "*",
}


def _patterns(table: dict[str, str]) -> list[str]:
    return [f"{section}.{name}".lstrip(".") for section, names in table.items() for name in names.split()]


@cache
def all_patterns() -> dict[str, Reader]:
    """Every entry of the tables, with the code that reads it. Do not change it: all callers share one object."""
    tables = {
        Reader.VERL: _patterns(READ_BY_VERL),
        Reader.DITTO: _patterns(READ_BY_DITTO),
        Reader.OUTSIDE: _patterns(OUTSIDE),
        Reader.FIXED: list(FIXED),
    }
    readers: dict[str, Reader] = {}
    for reader, patterns in tables.items():
        for pattern in patterns:
            if pattern in readers:
                raise ValueError(f"{pattern} is in two tables of ditto/config_checks; keep one entry")
            readers[pattern] = reader
    return readers


@cache
def pattern_of(key: str) -> str | None:
    """The table entry that applies to a key: the key itself, else the longest pattern that covers it."""
    if key in all_patterns():
        return key
    covering = [pattern for pattern in all_patterns() if "*" in pattern and _matcher(pattern).fullmatch(key)]
    return max(covering, key=len, default=None)


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    """`a.*` covers a itself (it may be empty or null) and everything below it; `*.b` covers every b."""
    if pattern.endswith(".*"):
        return re.compile(re.escape(pattern[:-2]) + r"(\..+)?")
    return re.compile(re.escape(pattern).replace(r"\*", ".+"))


def reader_of(key: str) -> Reader | None:
    """Which code reads a key; None if no table has it."""
    pattern = pattern_of(key)
    return None if pattern is None else all_patterns()[pattern]
