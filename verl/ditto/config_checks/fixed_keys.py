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
_WEIGHT_SYNC = (
    "follows the mode and the platform: where actor and rollout share their devices, weights are copied directly "
    "(naive); in ditto_separate_async NCCL sends them, on a CPU gloo (ditto/verl_hooks/gloo_engine.py)."
)
_MTP = "multi-token prediction is not supported: no part of the objective would train its heads."
_MOE_REPLAY = "the agent loop does not record expert routing, so it can be neither replayed nor measured."
_LOG_PROB_ROWS = "log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu log_prob_use_dynamic_bsz"


def same(why: str, section: str, names: str) -> dict[str, str]:
    """Several keys of a section, separated by spaces, that are fixed for the same reason."""
    return {f"{section}.{name}".lstrip("."): why for name in names.split()}


def _of_engine(section: str) -> dict[str, str]:
    """The fixed keys of an FSDP engine's section; actor and reference policy have one each."""
    return {
        f"{section}.qat.*": _NO_QAT,
        f"{section}.strategy": _FOLLOWS.format(source="actor_rollout_ref.actor.strategy"),
        f"{section}.ulysses_sequence_parallel_size": _ULYSSES,
        **same(_FSDP1_ONLY, section, "use_orig_params wrap_policy.min_num_params"),
        f"{section}.dtype": (
            f"FSDP2 does not read it. The precision of the computation is {section}.mixed_precision.param_dtype."
        ),
        f"{section}.turbo_config.*": _TURBO,
    }


FIXED: dict[str, str] = {
    "*._target_": "names the class that verl builds from this section. Leave it unchanged.",
    "model_engine": "the actor runs on FSDP2; verl's other engines are not supported. Leave model_engine=dp.",
    # ---- actor
    "actor_rollout_ref.hybrid_engine": (
        "would start rollout servers on the devices that train too. In ditto_separate_async only the servers on "
        "rollout.nnodes x rollout.n_gpus_per_node sample; the other modes do not read it. Leave it false."
    ),
    "actor_rollout_ref.nccl_timeout": (
        "verl's V1 workers do not read it. run.phase_timeout_s ends a phase that takes too long."
    ),
    "actor_rollout_ref.actor.strategy": (
        "the actor runs on FSDP2 (strategy=fsdp2): losses, checkpoints and exports are tested only with it."
    ),
    "actor_rollout_ref.actor.rollout_n": _FOLLOWS.format(source="actor_rollout_ref.rollout.n"),
    **same(_DYNAMIC, "actor_rollout_ref.actor", "ppo_micro_batch_size ppo_micro_batch_size_per_gpu use_dynamic_bsz"),
    "actor_rollout_ref.actor.freeze_vision_tower": (
        "verl's V1 trainer does not read it. Name the modules to train: actor_rollout_ref.model.target_modules and "
        "exclude_modules with lora_rank > 0."
    ),
    **same(_V0_ONLY, "actor_rollout_ref.actor", "calculate_sum_pi_squared use_prefix_grouper"),
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
    **same(
        _OTHER_LOSS,
        "actor_rollout_ref.actor.policy_loss",
        "clip_cov_ratio clip_cov_lb clip_cov_ub kl_cov_ratio ppo_kl_coef",
    ),
    "actor_rollout_ref.actor.optim.total_training_steps": _FOLLOWS.format(source="trainer.total_training_steps"),
    "actor_rollout_ref.actor.checkpoint.async_save": (
        "is implemented only for Megatron. Here a checkpoint is written completely and then published by one rename."
    ),
    "actor_rollout_ref.actor.checkpoint.strict": "is read only by Megatron's checkpoints.",
    "actor_rollout_ref.actor.qat.*": _NO_QAT,
    "actor_rollout_ref.actor.fsdp_config.forward_only": "the actor is trained. Leave it false.",
    **_of_engine("actor_rollout_ref.actor.fsdp_config"),
    # ---- reference policy
    "actor_rollout_ref.ref.rollout_n": _FOLLOWS.format(source="actor_rollout_ref.rollout.n"),
    "actor_rollout_ref.ref.strategy": _FOLLOWS.format(source="actor_rollout_ref.actor.strategy"),
    "actor_rollout_ref.ref.use_torch_compile": (
        "the FSDP engine does not read it. Use actor_rollout_ref.ref.fsdp_config.use_torch_compile."
    ),
    **same(_DYNAMIC, "actor_rollout_ref.ref", _LOG_PROB_ROWS),
    "actor_rollout_ref.ref.ulysses_sequence_parallel_size": _ULYSSES,
    "actor_rollout_ref.ref.fsdp_config.forward_only": "the reference policy is never trained. Leave it true.",
    **_of_engine("actor_rollout_ref.ref.fsdp_config"),
    # ---- rollout
    "actor_rollout_ref.rollout.name": (
        "rollouts run on vLLM (name=vllm): only its log-probs and weight sync are tested."
    ),
    "actor_rollout_ref.rollout.mode": "verl has only the mode async.",
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
    **same(_DYNAMIC, "actor_rollout_ref.rollout", _LOG_PROB_ROWS),
    "actor_rollout_ref.rollout.do_sample": (
        "verl's V1 rollout does not read it. Sampling is set by actor_rollout_ref.rollout.temperature, top_p and top_k."
    ),
    "actor_rollout_ref.rollout.val_kwargs.do_sample": (
        "verl's V1 rollout does not read it. Set actor_rollout_ref.rollout.val_kwargs.temperature (0: greedy)."
    ),
    "actor_rollout_ref.rollout.repetition_penalty": "verl's V1 rollout always samples with 1.0.",
    **same(
        _OTHER_SERVER,
        "actor_rollout_ref.rollout",
        "over_sample_rate multi_stage_wake_up engine_kwargs.sglang.* engine_kwargs.trtllm.*",
    ),
    "actor_rollout_ref.rollout.skip_tokenizer_init": "verl's vLLM server always loads its tokenizer.",
    "actor_rollout_ref.rollout.multi_turn.*": (
        "is read by verl's own agent loops. Here the task plays its turns (docs/tasks), within "
        "data.max_response_length tokens per seat; set a task's options under tasks.<name>."
    ),
    **same(_SOUL_LOOP, "actor_rollout_ref.rollout.agent", "default_agent_loop agent_loop_config_path"),
    "actor_rollout_ref.rollout.agent.custom_async_server.*": "verl's V1 trainer does not read it.",
    **same(
        _WEIGHT_SYNC, "actor_rollout_ref.rollout.checkpoint_engine", "backend engine_kwargs.* custom_backend_module"
    ),
    "actor_rollout_ref.rollout.trace.*": _TRACES,
    **same(_MOE_REPLAY, "actor_rollout_ref.rollout", "enable_rollout_routing_replay moe_load_balance_metrics_interval"),
    "actor_rollout_ref.rollout.mtp.*": _MTP,
    "actor_rollout_ref.rollout.qat.*": _NO_QAT,
    "actor_rollout_ref.rollout.disaggregation.*": (
        "separate servers for prefill and decoding cannot receive new weights while they share the actor's devices."
    ),
    # ---- model
    **same(_MODEL_FOLDER, "actor_rollout_ref.model", "hf_config_path tokenizer_path"),
    "actor_rollout_ref.model.tiled_mlp.*": "verl's FSDP engine does not read it.",
    "actor_rollout_ref.model.mtp.*": _MTP,
    "actor_rollout_ref.model.override_config.*": (
        "changes the trained model, but neither the one that samples nor, with an adapter alone, the exported one. "
        "Change config.json in a copy of the model's folder, and train from that."
    ),
    "actor_rollout_ref.model.target_parameters": (
        "adapts whole tensors of experts, which the exported model would not have. Name linear layers in "
        "actor_rollout_ref.model.target_modules."
    ),
    "actor_rollout_ref.model.lora.*": (
        "is Megatron's section. With FSDP2 use actor_rollout_ref.model.lora_rank, lora_alpha, target_modules, "
        "exclude_modules and lora_adapter_path."
    ),
    # ---- data
    "data.tokenizer": _MODEL_FOLDER,
    **same(
        _ROWS,
        "data",
        "use_shm prompt_key reward_fn_key tool_config_path function_tool_path return_raw_input_ids return_raw_chat "
        "return_full_prompt filter_overlong_prompts_workers",
    ),
    "data.gen_batch_size": "a step draws exactly data.train_batch_size prompts. Set that key instead.",
    **same(
        _TEXT_ONLY,
        "data",
        "return_multi_modal_inputs image_patch_size image_key video_key audio_key mm_processor_kwargs.*",
    ),
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
    "algorithm.filter_groups.metric": (
        "the objective decides which groups teach something (ditto/rollout/group_filter.py), not one metric."
    ),
    "algorithm.filter_groups.max_inflight_gen_batches": (
        "a dropped group is replaced by at most one prompt; algorithm.filter_groups.max_num_gen_batches limits them."
    ),
    "algorithm.use_kl_in_reward": (
        "is not supported: rewards come unchanged from the judge. Use actor_rollout_ref.actor.use_kl_loss=true."
    ),
    "algorithm.kl_penalty": "belongs to use_kl_in_reward. Use actor_rollout_ref.actor.kl_loss_type.",
    "algorithm.kl_ctrl.*": "belongs to use_kl_in_reward. Use actor_rollout_ref.actor.kl_loss_coef.",
    **same(_V0_ONLY, "algorithm", "use_pf_ppo pf_ppo.*"),
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
        "would be called with the temporary folder of a checkpoint, before it is renamed. To copy checkpoints to a "
        "store, set trainer.upload_to; to react to a new one, watch "
        "<default_local_dir>/latest_checkpointed_iteration.txt, which is replaced last."
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
    "trainer.v1.separate_async.hybrid_rollout.*": (
        "lends the devices that train to the rollout; here they only train (actor_rollout_ref.hybrid_engine=false). "
        "Divide the devices between trainer.n_gpus_per_node and actor_rollout_ref.rollout.n_gpus_per_node instead."
    ),
    "trainer.v1.sampler.sync_refill_failed_groups": (
        "failed sessions are masked and counted, and their groups stay (judge.max_failure_rate ends a run in which too "
        "many fail); refilling the groups would hide the failures."
    ),
    "trainer.v1.sampler.sampler_kwargs.*": "verl's replay buffers do not read it.",
    # ---- whole sections
    "critic.*": _NO_CRITIC,
    **same(_REWARDS_ARE_JUDGED, "", "reward.* reward_model.* custom_reward_function.* sandbox_fusion.*"),
    "distillation.*": (
        "verl's distillation from teacher servers is not used (ditto/model/experts.py says why). To distil experts "
        "into one student, use recipe/ditto/distill.sh (docs/distillation.md), or "
        "algorithm.objective=on_policy_distillation."
    ),
    "skip.*": "replays old rollouts instead of sampling from the policy. Leave it off.",
}
