"""Keys that must keep their default, because this trainer does not read them or another value would be wrong.

Each entry says why and what to use instead; a run that overrides such a key ends with that text. `a.*` covers
everything below a; the most specific entry applies.
"""

from __future__ import annotations

_V0_ONLY = "is read only by verl's older trainer, which is not used here."
_NO_CRITIC = (
    "there is no critic: advantages are statistics of a group's rewards (ditto/objectives/advantages.py). Leave the "
    "whole section critic unchanged."
)
_REWARDS_ARE_JUDGED = (
    "rewards come from the task's own judge (sections judge, feedback, partner, environment; docs/judge.md), and "
    "verl's reward workers are not used. To define your own reward, add a task: docs/add_a_task.md."
)
_FSDP1_ONLY = "is read only by FSDP1, and actor.strategy is fsdp2."
_TURBO = "belongs to the strategy fsdp_turbo, and actor.strategy is fsdp2."
_NO_QAT = "quantization-aware training is not supported: the exported checkpoint would differ from the trained model."
_ULYSSES = (
    "splitting a sequence across devices is not supported: attention here needs whole sequences. Leave it at 1; for "
    "long sequences, lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu."
)
_DYNAMIC = (
    "a fixed number of rows per micro-batch would have to divide a mini-batch whose number of sequences changes from "
    "step to step. Micro-batches are packed by tokens instead: set actor_rollout_ref.actor.ppo_max_token_len_per_gpu "
    "(and the rollout's and reference's log_prob_max_token_len_per_gpu)."
)
_OTHER_LOSS = "belongs to a policy loss that is not supported here (set actor.policy_loss.loss_mode to it to see why)."
_MODEL_FOLDER = (
    "config, tokenizer and weights come from one folder or hub id. Set actor_rollout_ref.model.path instead."
)
_ROWS = "each row is read by its task, not by verl's dataset (docs/tasks). There is no equivalent here."
_TEXT_ONLY = "the tasks are text only: no images, videos or audio reach the policy."
_TRACES = (
    "verl's tracing is not connected to this trainer. Every session is in <run.dir>/traces (README: what a run leaves)."
)
_OTHER_SERVER = (
    "belongs to another rollout server; this trainer runs vLLM (actor_rollout_ref.rollout.engine_kwargs.vllm)."
)
_SOUL_LOOP = (
    "the agent loop soul plays all sessions (ditto/rollout/agent_loop.py). Your own task does not need its own loop: "
    "docs/add_a_task.md."
)
_FOLLOWS = "its value follows {source}. Set {source} instead."
_SHARED_DEVICES = "actor and rollout share their devices, so weights are copied directly. Leave backend=naive."
_MTP = "multi-token prediction is not supported: no part of the objective would train its heads."
_MOE_REPLAY = "the agent loop does not record expert routing, so it can be neither replayed nor measured."

FIXED: dict[str, str] = {
    "*._target_": "names the class that verl builds from this section. Leave it unchanged.",
    "model_engine": "the actor runs on FSDP2; verl's other engines are not supported. Leave model_engine=dp.",
    # ---- actor
    "actor_rollout_ref.hybrid_engine": "is read only in the mode separate_async, which is not supported.",
    "actor_rollout_ref.nccl_timeout": (
        "verl's V1 workers do not read it. run.phase_timeout_s ends a phase that takes too long."
    ),
    "actor_rollout_ref.actor.strategy": (
        "the actor runs on FSDP2 (strategy=fsdp2): losses, checkpoints and exports are tested only with it."
    ),
    "actor_rollout_ref.actor.rollout_n": _FOLLOWS.format(source="actor_rollout_ref.rollout.n"),
    "actor_rollout_ref.actor.ppo_micro_batch_size": _DYNAMIC,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": _DYNAMIC,
    "actor_rollout_ref.actor.use_dynamic_bsz": _DYNAMIC,
    "actor_rollout_ref.actor.freeze_vision_tower": (
        "verl's V1 trainer does not read it. Name the modules to train: actor_rollout_ref.model.target_modules and "
        "exclude_modules with lora_rank > 0."
    ),
    "actor_rollout_ref.actor.calculate_sum_pi_squared": _V0_ONLY,
    "actor_rollout_ref.actor.use_prefix_grouper": _V0_ONLY,
    "actor_rollout_ref.actor.use_torch_compile": (
        "the FSDP engine does not read it. Use actor_rollout_ref.actor.fsdp_config.use_torch_compile."
    ),
    "actor_rollout_ref.actor.shuffle": (
        "rows are ordered so that each mini-batch holds ppo_mini_batch_size prompts, balanced over devices "
        "(ditto/batch/minibatch_layout.py); shuffling would break the mini-batches apart. actor.data_loader_seed "
        "permutes the prompts of a step; data.shuffle and data.seed decide which prompts a step gets."
    ),
    "actor_rollout_ref.actor.grad_clip": (
        "the FSDP engine does not read it. Use actor_rollout_ref.actor.optim.clip_grad."
    ),
    "actor_rollout_ref.actor.use_fused_kernels": _FOLLOWS.format(source="actor_rollout_ref.model.use_fused_kernels"),
    "actor_rollout_ref.actor.use_remove_padding": _FOLLOWS.format(source="actor_rollout_ref.model.use_remove_padding"),
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": _ULYSSES,
    "actor_rollout_ref.actor.policy_loss.clip_cov_ratio": _OTHER_LOSS,
    "actor_rollout_ref.actor.policy_loss.clip_cov_lb": _OTHER_LOSS,
    "actor_rollout_ref.actor.policy_loss.clip_cov_ub": _OTHER_LOSS,
    "actor_rollout_ref.actor.policy_loss.kl_cov_ratio": _OTHER_LOSS,
    "actor_rollout_ref.actor.policy_loss.ppo_kl_coef": _OTHER_LOSS,
    "actor_rollout_ref.actor.optim.total_training_steps": _FOLLOWS.format(source="trainer.total_training_steps"),
    "actor_rollout_ref.actor.checkpoint.async_save": (
        "is implemented only for Megatron. Here a checkpoint is written completely and then published by one rename."
    ),
    "actor_rollout_ref.actor.checkpoint.strict": "is read only by Megatron's checkpoints.",
    "actor_rollout_ref.actor.qat.*": _NO_QAT,
    "actor_rollout_ref.actor.fsdp_config.qat.*": _NO_QAT,
    "actor_rollout_ref.actor.fsdp_config.forward_only": "the actor is trained. Leave it false.",
    "actor_rollout_ref.actor.fsdp_config.strategy": _FOLLOWS.format(source="actor_rollout_ref.actor.strategy"),
    "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size": _ULYSSES,
    "actor_rollout_ref.actor.fsdp_config.use_orig_params": _FSDP1_ONLY,
    "actor_rollout_ref.actor.fsdp_config.wrap_policy.min_num_params": _FSDP1_ONLY,
    "actor_rollout_ref.actor.fsdp_config.dtype": (
        "FSDP2 does not read it. The precision of the computation is "
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype."
    ),
    "actor_rollout_ref.actor.fsdp_config.turbo_config.*": _TURBO,
    # ---- reference policy
    "actor_rollout_ref.ref.rollout_n": _FOLLOWS.format(source="actor_rollout_ref.rollout.n"),
    "actor_rollout_ref.ref.strategy": _FOLLOWS.format(source="actor_rollout_ref.actor.strategy"),
    "actor_rollout_ref.ref.use_torch_compile": (
        "the FSDP engine does not read it. Use actor_rollout_ref.ref.fsdp_config.use_torch_compile."
    ),
    "actor_rollout_ref.ref.log_prob_micro_batch_size": _DYNAMIC,
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": _DYNAMIC,
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": _DYNAMIC,
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": _ULYSSES,
    "actor_rollout_ref.ref.fsdp_config.qat.*": _NO_QAT,
    "actor_rollout_ref.ref.fsdp_config.forward_only": "the reference policy is never trained. Leave it true.",
    "actor_rollout_ref.ref.fsdp_config.strategy": _FOLLOWS.format(source="actor_rollout_ref.actor.strategy"),
    "actor_rollout_ref.ref.fsdp_config.ulysses_sequence_parallel_size": _ULYSSES,
    "actor_rollout_ref.ref.fsdp_config.use_orig_params": _FSDP1_ONLY,
    "actor_rollout_ref.ref.fsdp_config.wrap_policy.min_num_params": _FSDP1_ONLY,
    "actor_rollout_ref.ref.fsdp_config.dtype": (
        "FSDP2 does not read it. The precision of the computation is "
        "actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype."
    ),
    "actor_rollout_ref.ref.fsdp_config.turbo_config.*": _TURBO,
    # ---- rollout
    "actor_rollout_ref.rollout.name": (
        "rollouts run on vLLM (name=vllm): only its log-probs and weight sync are tested."
    ),
    "actor_rollout_ref.rollout.mode": "verl has only the mode async.",
    "actor_rollout_ref.rollout.nnodes": (
        "separate nodes for rollouts belong to the mode separate_async, which is not supported. Rollouts and updates "
        "share trainer.nnodes."
    ),
    "actor_rollout_ref.rollout.n_gpus_per_node": _FOLLOWS.format(source="trainer.n_gpus_per_node"),
    "actor_rollout_ref.rollout.prompt_length": _FOLLOWS.format(source="data.max_prompt_length"),
    "actor_rollout_ref.rollout.response_length": _FOLLOWS.format(source="data.max_response_length"),
    "actor_rollout_ref.rollout.pipeline_model_parallel_size": (
        "verl's vLLM rollout has no pipeline parallelism. Use actor_rollout_ref.rollout.tensor_model_parallel_size."
    ),
    "actor_rollout_ref.rollout.logprobs_mode": (
        "the rollout's log-probs are compared with the actor's, which are computed at the sampling temperature. Leave "
        "logprobs_mode=processed_logprobs."
    ),
    "actor_rollout_ref.rollout.calculate_log_probs": (
        "every sequence needs the log-probs of its sampled tokens: they show after each weight sync whether rollout "
        "and actor agree. Leave calculate_log_probs=true."
    ),
    "actor_rollout_ref.rollout.log_prob_micro_batch_size": _DYNAMIC,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": _DYNAMIC,
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": _DYNAMIC,
    "actor_rollout_ref.rollout.do_sample": (
        "verl's V1 rollout does not read it. Sampling is set by actor_rollout_ref.rollout.temperature, top_p and top_k."
    ),
    "actor_rollout_ref.rollout.val_kwargs.do_sample": (
        "verl's V1 rollout does not read it. Set actor_rollout_ref.rollout.val_kwargs.temperature (0: greedy)."
    ),
    "actor_rollout_ref.rollout.repetition_penalty": "verl's V1 rollout always samples with 1.0.",
    "actor_rollout_ref.rollout.over_sample_rate": _OTHER_SERVER,
    "actor_rollout_ref.rollout.multi_stage_wake_up": _OTHER_SERVER,
    "actor_rollout_ref.rollout.engine_kwargs.sglang.*": _OTHER_SERVER,
    "actor_rollout_ref.rollout.engine_kwargs.trtllm.*": _OTHER_SERVER,
    "actor_rollout_ref.rollout.skip_tokenizer_init": "verl's vLLM server always loads its tokenizer.",
    "actor_rollout_ref.rollout.multi_turn.*": (
        "is read by verl's own agent loops. Here the task plays its turns (docs/tasks), within "
        "data.max_response_length tokens per seat; set a task's options under tasks.<name>."
    ),
    "actor_rollout_ref.rollout.agent.default_agent_loop": _SOUL_LOOP,
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": _SOUL_LOOP,
    "actor_rollout_ref.rollout.agent.custom_async_server.*": "verl's V1 trainer does not read it.",
    "actor_rollout_ref.rollout.checkpoint_engine.backend": _SHARED_DEVICES,
    "actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.*": _SHARED_DEVICES,
    "actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module": _SHARED_DEVICES,
    "actor_rollout_ref.rollout.trace.*": _TRACES,
    "actor_rollout_ref.rollout.enable_rollout_routing_replay": _MOE_REPLAY,
    "actor_rollout_ref.rollout.moe_load_balance_metrics_interval": _MOE_REPLAY,
    "actor_rollout_ref.rollout.mtp.*": _MTP,
    "actor_rollout_ref.rollout.qat.*": _NO_QAT,
    "actor_rollout_ref.rollout.disaggregation.*": (
        "separate servers for prefill and decoding cannot receive new weights while they share the actor's devices."
    ),
    # ---- model
    "actor_rollout_ref.model.hf_config_path": _MODEL_FOLDER,
    "actor_rollout_ref.model.tokenizer_path": _MODEL_FOLDER,
    "actor_rollout_ref.model.tiled_mlp.*": "verl's FSDP engine does not read it.",
    "actor_rollout_ref.model.mtp.*": _MTP,
    "actor_rollout_ref.model.lora.*": (
        "is Megatron's section. With FSDP2 use actor_rollout_ref.model.lora_rank, lora_alpha, target_modules, "
        "exclude_modules and lora_adapter_path."
    ),
    # ---- data
    "data.tokenizer": _MODEL_FOLDER,
    "data.use_shm": _ROWS,
    "data.prompt_key": _ROWS,
    "data.reward_fn_key": _ROWS,
    "data.gen_batch_size": "a step draws exactly data.train_batch_size prompts. Set that key instead.",
    "data.tool_config_path": _ROWS,
    "data.function_tool_path": _ROWS,
    "data.return_raw_input_ids": _ROWS,
    "data.return_raw_chat": _ROWS,
    "data.return_full_prompt": _ROWS,
    "data.return_multi_modal_inputs": _TEXT_ONLY,
    "data.image_patch_size": _TEXT_ONLY,
    "data.image_key": _TEXT_ONLY,
    "data.video_key": _TEXT_ONLY,
    "data.audio_key": _TEXT_ONLY,
    "data.mm_processor_kwargs.*": _TEXT_ONLY,
    "data.filter_overlong_prompts_workers": _ROWS,
    "data.truncation": (
        "a prompt that is too long is shortened in the fields that its task names, or causes an error "
        "(data.filter_overlong_prompts=true leaves such rows out). Instructions are never cut."
    ),
    "data.trust_remote_code": _FOLLOWS.format(source="actor_rollout_ref.model.trust_remote_code"),
    "data.custom_cls.*": (
        "rows come from task files (data.train_files, data.val_files) through ditto.rows.dataset, and the checks "
        "before a run read the same rows. To train on your own data, add a task: docs/add_a_task.md."
    ),
    # ---- algorithm
    "algorithm.adv_estimator": (
        "this trainer computes advantages itself (ditto/objectives/advantages.py); verl only validates the name, so "
        "leave grpo. algorithm.objective decides what is estimated, and algorithm.norm_adv_by_std_in_grpo whether it "
        "is divided by the standard deviation."
    ),
    "algorithm.gamma": "an episode has one reward, at its end: nothing is discounted.",
    "algorithm.lam": "an episode has one reward, at its end: there is no lambda-return.",
    "algorithm.filter_groups.*": (
        "groups whose rewards are all equal are kept with advantage 0: replacing them would change which prompts a "
        "step trains on. There is no equivalent here."
    ),
    "algorithm.use_kl_in_reward": (
        "is not supported: rewards come unchanged from the judge. Use actor_rollout_ref.actor.use_kl_loss=true."
    ),
    "algorithm.kl_penalty": "belongs to use_kl_in_reward. Use actor_rollout_ref.actor.kl_loss_type.",
    "algorithm.kl_ctrl.*": "belongs to use_kl_in_reward. Use actor_rollout_ref.actor.kl_loss_coef.",
    "algorithm.use_pf_ppo": _V0_ONLY,
    "algorithm.pf_ppo.*": _V0_ONLY,
    "algorithm.rollout_correction.bypass_mode": (
        "takes pi_old from the rollout, where refined sequences were sampled in another context (with feedback). "
        "Leave it off; to choose this for refined sequences, set algorithm.refined_old_logp=rollout."
    ),
    "algorithm.rollout_correction.loss_type": "belongs to bypass_mode, which is not supported.",
    "algorithm.rollout_correction.rollout_rs": (
        "(rejection by importance weight) is not supported: a rejected token would have to leave the group statistics "
        "too. Use algorithm.rollout_correction.rollout_is."
    ),
    "algorithm.rollout_correction.rollout_rs_threshold": "belongs to rollout_rs, which is not supported.",
    # ---- trainer
    "trainer.balance_batch": (
        "rows are always balanced over the devices, within each mini-batch (ditto/batch/minibatch_layout.py). Leave "
        "it true."
    ),
    "trainer.esi_redundant_time": "verl's V1 trainer does not read it. Use trainer.save_freq.",
    "trainer.checkpoint_callback_class": (
        "would be called with the temporary folder of a checkpoint, before it is renamed. To react to a new "
        "checkpoint, watch <default_local_dir>/latest_checkpointed_iteration.txt, which is replaced last."
    ),
    "trainer.critic_warmup": "there is no critic to warm up: the actor would just not be trained for those steps.",
    "trainer.default_hdfs_dir": "FSDP checkpoints are written only to trainer.default_local_dir.",
    "trainer.del_local_ckpt_after_load": "deletes no local checkpoint. Use trainer.max_actor_ckpt_to_keep.",
    "trainer.max_critic_ckpt_to_keep": "there is no critic. Use trainer.max_actor_ckpt_to_keep.",
    "trainer.ray_wait_register_center_timeout": "verl's V1 trainer does not read it.",
    "trainer.rollout_data_dir": (
        "verl writes the reward of a session's last sequence next to all of them, so a draft would show the reward of "
        "its refined answer. Every session with all its rewards is in <run.dir>/traces."
    ),
    "trainer.use_v1": "the DITTO trainer is built on verl's V1 trainer. Leave it true.",
    "trainer.v1.sync.*": "the mode sync has no options.",
    "trainer.v1.separate_async.*": "the mode separate_async is not supported (trainer.v1.trainer_mode says why).",
    "trainer.v1.sampler.sync_refill_failed_groups": (
        "failed sessions are masked and counted, and their groups stay (judge.max_failure_rate ends a run in which too "
        "many fail); refilling the groups would hide the failures."
    ),
    "trainer.v1.sampler.sampler_kwargs.*": "verl's replay buffers do not read it.",
    # ---- whole sections
    "critic.*": _NO_CRITIC,
    "reward.*": _REWARDS_ARE_JUDGED,
    "reward_model.*": _REWARDS_ARE_JUDGED,
    "custom_reward_function.*": _REWARDS_ARE_JUDGED,
    "sandbox_fusion.*": _REWARDS_ARE_JUDGED,
    "distillation.*": (
        "verl's distillation from a teacher is not one of the objectives here. To distil several experts into one "
        "student, use recipe/ditto/distill.sh (docs/distillation.md)."
    ),
    "skip.*": "replays old rollouts instead of sampling from the policy. Leave it off.",
}
