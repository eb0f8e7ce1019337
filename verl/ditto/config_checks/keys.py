"""Every key that a training run reads, with its type, its range and its meaning; an override of another key is refused.

Our own sections come from their pydantic models. verl's keys are listed here: verl's config has a thousand, and most
are read only by code that does not run here (its older trainer, other engines and servers, its critic), so an override
of them would be accepted and change nothing. docs/configuration.md and `--cfg` show the keys that have a meaning.

To let a run set another key of verl, find the code that reads it, and add the key to its section below.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ditto.config_checks.key_types import (
    Betas,
    Count,
    Devices,
    Dtype,
    Frequency,
    FromZero,
    Key,
    Keys,
    KlType,
    Limit,
    Logger,
    NotNegative,
    Open,
    Positive,
    Seed,
    Share,
    ShareAboveZero,
    Text,
    Texts,
    Tokens,
    below,
    defaults_of,
    of_model,
    several,
)
from ditto.objectives.loss_weights import LOSS_AGG_MODES
from ditto.policies import SelfPlaySettings
from ditto.rows.mixture import MixtureSettings
from ditto.settings import AlgorithmSettings, MemorySettings, RunSettings
from soul.judge.call.endpoint import Endpoint
from soul.judge.roles import ROLES, JudgePolicy
from soul.session import RefineSettings

ADAPTER = "Modules without a LoRA adapter, as a regular expression. Text never passes through these."
PRECISION = "Precision of the weights that are trained. A frozen base is stored in bfloat16, and computed in it."
OPTIMIZER: Keys = {
    "lr": Key(ShareAboveZero, "Learning rate, at its peak."),
    "lr_scheduler_type": Key(Literal["constant", "cosine"], "Shape of the learning rate after the warm-up."),
    "lr_warmup_steps": Key(Annotated[int, Field(ge=-1)], "Steps of warm-up; -1 takes lr_warmup_steps_ratio."),
    "weight_decay": Key(NotNegative, "Weight decay."),
    "clip_grad": Key(Positive, "Norm at which gradients are clipped."),
    **several(Share, "lr_warmup_steps_ratio min_lr_ratio"),
    **several(Text, "optimizer optimizer_impl"),
    "betas": Key(Betas),
}
# What an FSDP engine reads, for actor and reference policy (verl/workers/engine/fsdp/transformer_impl.py).
ENGINE: Keys = {
    "model_dtype": Key(Dtype, PRECISION),
    "use_torch_compile": Key(bool, "Compile the model's forward pass."),
    "mixed_precision.param_dtype": Key(Dtype, "Precision of the computation; without a value verl casts to bfloat16."),
    "param_offload": Key(bool, "Keep the weights on the host during rollout."),
    "optimizer_offload": Key(bool, "Keep the optimizer's state on the host during rollout."),
    "mixed_precision": Key(Open),
    **several(bool, "offload_policy reshard_after_forward forward_prefetch"),
    "fsdp_size": Key(Limit),
    "seed": Key(Seed),
    "wrap_policy.transformer_layer_cls_to_wrap": Key(list[str]),
}
MODEL: Keys = {
    "path": Key(Text, "The model: a hub id, a folder, or the `global_step_N` of a run."),
    "lora_rank": Key(Annotated[int, Field(ge=0, le=512)], "Rank of the LoRA adapter; 0 trains all weights."),
    "lora_alpha": Key(Count, "Scale of the adapter, divided by the rank."),
    "target_modules": Key(Texts, "Modules that get an adapter."),
    "exclude_modules": Key(Texts | None, ADAPTER),
    "use_remove_padding": Key(bool, "Pack sequences without padding."),
    "use_fused_kernels": Key(bool, "Compute log-probs without holding the logits of a whole micro-batch."),
    "fused_kernel_options.impl_backend": Key(
        str, "`chunked` is ours and works with tied and untied heads; verl's need a tied head under FSDP2."
    ),
    "enable_gradient_checkpointing": Key(
        bool | None,
        "Compute activations again in the backward pass, which saves memory. null (on a CPU): only if a micro-batch "
        "does not fit without it.",
    ),
    "override_config.attn_implementation": Key(
        str, "`packed` needs torch alone; `flash_attention_2` where flash-attn is installed."
    ),
    "trust_remote_code": Key(bool, "Run code that comes with the model."),
    "external_lib": Key(Texts | None),
    "lora_adapter_path": Key(str | None),
    "lora.fully_sharded_loras": Key(bool),
    "override_config.attention_dropout": Key(float),
    "enable_activation_offload": Key(bool),
}
CHECKPOINT: Keys = {
    "save_lora_only": Key(bool, "Save the adapter without the model (LoRA); a checkpoint is then no model path."),
}
TRAINER: Keys = {
    "project_name": Key(str, "Project in Weights & Biases and other loggers."),
    "experiment_name": Key(
        Text, "Name of the run, and of its folder below `outputs`. The launchers set it from EXPERIMENT_NAME."
    ),
    "logger": Key(Logger | list[Logger], "Where else metrics go. `metrics.jsonl` is always written."),
    "default_local_dir": Key(Text, "Where checkpoints go."),
    "resume_mode": Key(
        Literal["auto", "disable", "resume_path"],
        "`auto` resumes from the newest whole checkpoint; `resume_path` from `trainer.resume_from_path`; `disable` "
        "starts anew and refuses a folder that holds a run.",
    ),
    "resume_from_path": Key(str | None, "The `global_step_N` that `resume_mode=resume_path` resumes from."),
    "resume_changed": Key(
        bool, "Resume although training files, their mixture or ratios, seed, batch size or lengths have changed."
    ),
    "total_epochs": Key(Count, "Passes over the rows, where total_training_steps is null."),
    "total_training_steps": Key(Count | None, "Steps of the run; null trains for total_epochs."),
    "save_freq": Key(Frequency, "Save a checkpoint every so many steps, and at the last one; 0 or -1 never."),
    "test_freq": Key(Frequency, "Validate every so many steps, and at the last one; 0 or -1 never."),
    "device": Key(Literal["cuda", "cpu"]),
    "nnodes": Key(Count, "Machines."),
    "n_gpus_per_node": Key(Devices, "GPUs of each machine (on a CPU, processes that train)."),
}

_ACTOR: Keys = {
    "ppo_mini_batch_size": Key(Count, "Prompts of one optimizer update; it must divide `data.train_batch_size`."),
    "ppo_epochs": Key(Count, "Passes over each step's sequences."),
    "ppo_max_token_len_per_gpu": Key(
        Tokens | None,
        "Tokens of a micro-batch; at least the longest sequence. null (on a CPU): what fits into the free memory, at "
        "most 65,536.",
    ),
    "clip_ratio_low": Key(Share, "The probability ratio is clipped below 1 minus this."),
    "clip_ratio_high": Key(NotNegative, "The probability ratio is clipped above 1 plus this."),
    "clip_ratio_c": Key(
        Annotated[float, Field(gt=1)], "Bound of the ratio where the advantage is negative (dual clip)."
    ),
    "loss_agg_mode": Key(Literal[LOSS_AGG_MODES], "How token losses become one number."),
    "use_kl_loss": Key(bool, "Add a KL term towards the reference policy to the loss."),
    "entropy_coeff": Key(float, "Weight of the entropy bonus in the loss."),
    "loss_scale_factor": Key(Positive | None),
    "policy_loss.loss_mode": Key(Literal["vanilla", "gspo", "cispo"]),
    "kl_loss_coef": Key(NotNegative),
    "kl_loss_type": Key(KlType),
    "calculate_entropy": Key(bool),
    "data_loader_seed": Key(Seed),
}
_ROLLOUT: Keys = {
    "n": Key(Count, "Sessions of each prompt, that is the group size."),
    "temperature": Key(Positive),  # not 0: log-probs are computed at the sampling temperature
    "val_kwargs.n": Key(Count, "Sessions of each prompt in a validation."),
    "tensor_model_parallel_size": Key(Count, "GPUs of one rollout server."),
    "nnodes": Key(
        FromZero,
        "Machines that only sample, in `ditto_separate_async`; `actor_rollout_ref.rollout.n_gpus_per_node` is the "
        "number of GPUs of each.",
    ),
    "n_gpus_per_node": Key(Devices),
    "max_model_len": Key(
        Annotated[int, Field(ge=1, le=30_000_000)] | None, "Tokens of the longest sequence that vLLM takes."
    ),
    "dtype": Key(
        Literal["auto", "half", "float16", "bfloat16", "float", "float32"], "Precision of the rollout engine."
    ),
    "enforce_eager": Key(bool, "Run vLLM without CUDA graphs."),
    "free_cache_engine": Key(bool),
    "enable_sleep_mode": Key(bool | None),
    "max_num_seqs": Key(Count, "Requests that one vLLM server handles at once."),
    "max_num_batched_tokens": Key(Tokens, "Tokens of one forward pass of vLLM."),
    "gpu_memory_utilization": Key(ShareAboveZero, "Share of a GPU's memory for vLLM."),
    "agent.num_workers": Key(Count, "Processes that play sessions."),
    "checkpoint_engine.update_weights_bucket_megabytes": Key(
        Count | None,
        "Size of the pieces in which weights go to vLLM. null (on a CPU): the model's largest tensor, at least 64.",
    ),
    "engine_kwargs.vllm.kv_cache_memory_bytes": Key(
        Count | None,
        "Bytes of vLLM's key-value cache. null: enough for the sequences that are played at once, but at most a fifth "
        "of the free memory.",
    ),
    "engine_kwargs.vllm": Key(Open),
    "log_prob_max_token_len_per_gpu": Key(Tokens | None),
    **several(Limit, "top_k val_kwargs.top_k"),
    **several(ShareAboveZero, "top_p val_kwargs.top_p"),
    "val_kwargs.temperature": Key(NotNegative),
    "seed": Key(Seed),
    "quantization": Key(str | None),
}
_LENGTH = "null: 8,192, or its share of a shorter context."
_DATA: Keys = {
    "train_files": Key(Texts | None, "Parquet files of task rows; required."),
    "val_files": Key(Texts | None, "Parquet files of task rows for validation; required."),
    "train_batch_size": Key(Count, "Prompts of a training step; each is played `actor_rollout_ref.rollout.n` times."),
    "max_prompt_length": Key(
        Tokens | None,
        f"Tokens of a prompt at most. Longer rows are shortened in the fields that their task names. {_LENGTH}",
    ),
    "max_feedback_length": Key(
        Annotated[int, Field(ge=0, le=10_000_000)] | None,
        "Tokens that feedback may add to a prompt. null: 1,024, or its share of a shorter context.",
    ),
    "max_response_length": Key(
        Tokens | None,
        f"Tokens that a seat of the policy may use in one episode, over all its turns. {_LENGTH}",
    ),
    "max_turn_length": Key(
        Tokens,
        "Tokens of one turn in a dialogue, so that one turn cannot use up the episode; an answer of a one-turn task "
        "may have `data.max_response_length`. `soul evaluate local` has the same limit. Raise it for a model that "
        "thinks before each turn.",
    ),
    "allow_overlap": Key(
        bool,
        "Let training and validation rows share stories, conversations, books or users. Otherwise such a run is "
        "refused, because validation would measure memorization.",
    ),
    "filter_overlong_prompts": Key(bool, "Drop rows that stay too long; false makes them an error that names the row."),
    "shuffle": Key(bool, "Shuffle the training rows, by `data.seed`."),
    "seed": Key(Seed, "Seed of the order of the rows."),
    "apply_chat_template_kwargs": Key(
        Open, "Arguments of the model's chat template. Models that never think ignore `enable_thinking`."
    ),
    **several(Limit, "train_max_samples val_max_samples"),
}
_RL_TRAINER: Keys = {
    **TRAINER,
    "v1.trainer_mode": Key(
        Literal["ditto_sync", "ditto_colocate_async", "ditto_separate_async"],
        "`ditto_sync` alternates rollout and update; `ditto_colocate_async` starts the next rollout before the update "
        "ends; `ditto_separate_async` samples on devices of its own ([three modes](modes.md)).",
    ),
    "v1.colocate_async.num_warmup_batches": Key(
        NotNegative, "Batches of `data.train_batch_size` prompts that are sampled ahead of their training."
    ),
    "v1.separate_async.num_warmup_batches": Key(NotNegative, "The same, in this mode."),
    "v1.separate_async.parameter_sync_step": Key(
        Count, "Parts that a step trains between two weight syncs; train_batch_size / ppo_mini_batch_size."
    ),
    "v1.sampler.max_off_policy_threshold": Key(
        Count | None, "Asynchronous modes: steps that a prompt may wait for its training; null: any number."
    ),
    "v1.sampler.max_off_policy_strategy": Key(
        Literal["drop", "wait"], "A prompt that waits longer: drop it (another takes its place), or wait for it."
    ),
    **several(Text, "v1.sampler.custom_sampler.path v1.sampler.custom_sampler.name"),
    "val_before_train": Key(bool, "Validate before the first step."),
    "val_only": Key(bool),
    "max_actor_ckpt_to_keep": Key(Count | None, "Older checkpoints than this many are removed; null keeps all."),
    "log_val_generations": Key(FromZero),
    "validation_data_dir": Key(str | None),
}
_OTHER: Keys = {
    "algorithm.rollout_correction.rollout_is": Key(Literal["token", "sequence"] | None),
    "algorithm.rollout_correction.rollout_is_threshold": Key(float | str),
    "algorithm.rollout_correction.rollout_is_batch_normalize": Key(bool),
    "tasks": Key(Open),
    "transfer_queue": Key(Open),
    "ray_kwargs.ray_init.num_cpus": Key(Count | None, "CPUs that Ray counts with; on a CPU machine they are logical."),
    "ray_kwargs": Key(Open),
    "dry_run": Key(bool),
}
RL_KEYS: Keys = {
    **of_model("algorithm", AlgorithmSettings),
    **of_model("refine", RefineSettings),
    **of_model("judge", JudgePolicy, nullable=True),
    **{name: key for role in ROLES for name, key in of_model(role, Endpoint, nullable=True).items()},
    **of_model("run", RunSettings),
    **below("data", _DATA),
    **of_model("data.mixture", MixtureSettings),
    **below("trainer", _RL_TRAINER),
    **below("actor_rollout_ref.model", {**MODEL, "custom_chat_template": Key(str | None)}),
    **below("actor_rollout_ref.actor", _ACTOR),
    **below("actor_rollout_ref.actor.optim", OPTIMIZER),
    **below("actor_rollout_ref.actor.fsdp_config", ENGINE),
    **below("actor_rollout_ref.actor.checkpoint", CHECKPOINT),
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": Key(Tokens | None),
    **{name: Key(key.type) for name, key in below("actor_rollout_ref.ref.fsdp_config", ENGINE).items()},
    **below("actor_rollout_ref.rollout", _ROLLOUT),
    **of_model("memory", MemorySettings),
    "policies": Key(
        Open,
        "Several policies, each a LoRA adapter: name -> its seats and its objective, or `none` for the base model "
        "([two policies](two_policies.md)).",
    ),
    **of_model("self_play", SelfPlaySettings),
    **_OTHER,
}
# Keys without an effect on what is trained: names, places, logging, machines.
OUTSIDE = (
    *("trainer.project_name", "trainer.experiment_name", "trainer.logger", "trainer.log_val_generations"),
    *("trainer.validation_data_dir", "actor_rollout_ref.rollout.agent.num_workers", "transfer_queue", "ray_kwargs"),
)
# The defaults of our own sections; verl's are in its YAML files and in config/trainer.yaml.
DEFAULTS: Mapping[str, Any] = {
    "algorithm": defaults_of(AlgorithmSettings),
    "refine": defaults_of(RefineSettings),
    **{role: dict.fromkeys(Endpoint.model_fields) for role in ROLES},
    "run": defaults_of(RunSettings),
    "data": {"mixture": defaults_of(MixtureSettings)},
    "memory": defaults_of(MemorySettings),
    "policies": {},
    "self_play": defaults_of(SelfPlaySettings),
    "tasks": {},
}
DEFAULTS["judge"].update(defaults_of(JudgePolicy))
# Keys of verl that nothing reads here -> what to use in their place.
INSTEAD: Mapping[str, str] = {
    # Short names that other trainers have, and whose nearest key here means something else.
    "learning_rate": "actor_rollout_ref.actor.optim.lr",
    "temperature": "actor_rollout_ref.rollout.temperature",
    "model": "actor_rollout_ref.model.path",
    "epochs": "trainer.total_epochs",
    "max_steps": "trainer.total_training_steps",
    "grad_clip": "actor_rollout_ref.actor.optim.clip_grad",
    "gateway": "the sections judge, feedback, partner and environment",
    "reward": "the sections judge, feedback, partner and environment, or add a task (docs/add_a_task.md)",
    "critic": "algorithm.objective: there is no critic, advantages are statistics of a group's rewards",
    "distillation": "recipe/ditto/distill.sh, or algorithm.objective=on_policy_distillation (docs/distillation.md)",
    **dict.fromkeys(("algorithm.adv_estimator", "algorithm.agent_version"), "algorithm.objective"),
    **dict.fromkeys(
        ("algorithm.use_opd", "algorithm.opd_alpha"), "algorithm.objective=sdpo_token_grpo (docs/upgrading.md)"
    ),
    "algorithm.use_kl_in_reward": "actor_rollout_ref.actor.use_kl_loss",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "actor_rollout_ref.rollout.prompt_length": "data.max_prompt_length",
    "actor_rollout_ref.rollout.response_length": "data.max_response_length",
    "data.gen_batch_size": "data.train_batch_size",
    **{f"{role}.deadline_s": f"{role}.timeout_s" for role in ROLES},
}
