"""The values of a composed config that matter for memory, as plain numbers, and the key of each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.settings import BadConfig

_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
# Field of `Setup` -> key of the config. Remedies use the same keys.
KEYS = {
    "gpus": "trainer.n_gpus_per_node",
    "nodes": "trainer.nnodes",
    "tokens": f"{_ACTOR}.ppo_max_token_len_per_gpu",
    "log_prob_tokens": f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
    "mini_batch": f"{_ACTOR}.ppo_mini_batch_size",
    "param_offload": f"{_ACTOR}.fsdp_config.param_offload",
    "optimizer_offload": f"{_ACTOR}.fsdp_config.optimizer_offload",
    "offload_policy": f"{_ACTOR}.fsdp_config.offload_policy",
    "reshard": f"{_ACTOR}.fsdp_config.reshard_after_forward",
    "fsdp_size": f"{_ACTOR}.fsdp_config.fsdp_size",
    "defer_gradients": f"{_ACTOR}.fsdp_config.use_no_sync_for_gradient_accumulation",
    "checkpointing": f"{_MODEL}.enable_gradient_checkpointing",
    "fused_head": f"{_MODEL}.use_fused_kernels",
    "lora_rank": f"{_MODEL}.lora_rank",
    "utilization": f"{_ROLLOUT}.gpu_memory_utilization",
    "tensor_parallel": f"{_ROLLOUT}.tensor_model_parallel_size",
    "max_num_seqs": f"{_ROLLOUT}.max_num_seqs",
    "max_num_batched_tokens": f"{_ROLLOUT}.max_num_batched_tokens",
    "max_model_len": f"{_ROLLOUT}.max_model_len",
    "eager": f"{_ROLLOUT}.enforce_eager",
    "frees_cache": f"{_ROLLOUT}.free_cache_engine",
    "sleep_mode": f"{_ROLLOUT}.enable_sleep_mode",
    "bucket_mib": f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
    "agent_workers": f"{_ROLLOUT}.agent.num_workers",
    "prompts": "data.train_batch_size",
    "sessions": f"{_ROLLOUT}.n",
}


@dataclass(frozen=True)
class Setup:
    """The settings of a run that determine its memory."""

    gpus: int
    nodes: int
    tokens: int
    log_prob_tokens: int
    mini_batch: int  # prompts
    param_offload: bool
    optimizer_offload: bool
    offload_policy: bool
    reshard: bool
    fsdp_size: int  # -1: all devices
    defer_gradients: bool
    checkpointing: bool
    fused_head: bool
    lora_rank: int
    utilization: float
    tensor_parallel: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    eager: bool
    frees_cache: bool
    sleep_mode: bool
    bucket_mib: int
    agent_workers: int
    prompts: int
    sessions: int
    sequences: int  # training sequences per session
    master: int  # bytes per trained weight
    frozen: int  # bytes per frozen weight
    compute: int  # bytes per gathered weight and per activation
    reduce: int  # bytes per gradient between devices
    optimizer_states: int  # bytes of all optimizer states per trained weight
    rollout_number: int  # bytes per weight in vLLM
    merges_lora: bool  # vLLM gets merged weights instead of an adapter
    reference: int  # bytes per weight of a separate reference model for the KL loss; 0: there is none
    text_only: bool  # vLLM loads no vision tower
    colocated: bool  # policy and vLLM share their GPUs
    exports_model: bool

    @classmethod
    def from_config(cls, config: DictConfig, sequences: int) -> Setup:
        """Read a composed config; `sequences` is the objective's number of training sequences per session."""
        known = {name: OmegaConf.select(config, key) for name, key in KEYS.items()}
        ref = config.actor_rollout_ref
        precision = ref.actor.fsdp_config.get("mixed_precision") or {}
        master = number_bytes(ref.actor.fsdp_config.get("model_dtype") or "fp32", "model_dtype")
        compute = number_bytes(precision.get("param_dtype", "bf16"), "mixed_precision.param_dtype")
        lora = int(known["lora_rank"] or 0)
        needs_reference = bool(ref.actor.use_kl_loss) and not lora
        vllm = (ref.rollout.get("engine_kwargs") or {}).get("vllm") or {}
        known |= {
            "lora_rank": lora,
            "sleep_mode": known["sleep_mode"] is not False,  # null means verl's default, true
            "sequences": sequences,
            "master": master,
            "frozen": compute,  # ditto/model/engine.py stores frozen weights like this
            "compute": compute,
            "reduce": number_bytes(precision.get("reduce_dtype", "fp32"), "mixed_precision.reduce_dtype"),
            "optimizer_states": 2 if "8bit" in str(ref.actor.optim.get("optimizer", "AdamW")) else 2 * master,
            "rollout_number": 1 if ref.rollout.get("quantization") else number_bytes(ref.rollout.dtype, "dtype"),
            "merges_lora": bool((ref.model.get("lora") or {}).get("merge", False)),
            "reference": number_bytes(ref.ref.fsdp_config.model_dtype, "ref model_dtype") if needs_reference else 0,
            "text_only": bool(vllm.get("language_model_only")),
            "colocated": "separate" not in str(config.trainer.v1.trainer_mode),
            "exports_model": "hf_model" in ref.actor.checkpoint.save_contents,
        }
        return cls(**{field.name: known[field.name] for field in fields(cls)})

    @property
    def devices(self) -> int:
        """Number of GPUs that train."""
        return self.gpus * self.nodes

    @property
    def shards(self) -> int:
        """Number of GPUs over which one copy of the weights is sharded."""
        return self.devices if self.fsdp_size in (-1, 0) else min(self.fsdp_size, self.devices)

    @property
    def update_tokens(self) -> int:
        """Most tokens that one device can get in one optimizer update."""
        return -(-self.mini_batch * self.sessions * self.sequences // self.devices) * self.max_model_len


def number_bytes(name: Any, key: str) -> int:
    """Bytes per number of a number format.

    Args:
        key: the config key that holds it, for the message.

    Raises:
        BadConfig: an unknown name.
    """
    short = str(name).removeprefix("torch.")
    if short in ("bf16", "bfloat16", "fp16", "float16", "half"):
        return 2
    if short in ("fp32", "float32", "float"):
        return 4
    raise BadConfig(
        f"{key}={name}: use bfloat16, float16 or float32 (the memory plan supports no other number format)."
    )
