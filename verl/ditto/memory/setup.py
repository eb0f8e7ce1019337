"""The values of a composed config that matter for memory, as plain numbers, and the key of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import SEPARATE
from ditto.memory.estimate import Training
from ditto.objectives.spec import Objective
from ditto.settings import BadConfig

_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))


@dataclass(frozen=True)
class Setup:
    """The settings of a run that determine its memory, most of them with their key of the config."""

    gpus: Annotated[int, "trainer.n_gpus_per_node"]
    nodes: Annotated[int, "trainer.nnodes"]
    tokens: Annotated[int, f"{_ACTOR}.ppo_max_token_len_per_gpu"]
    log_prob_tokens: Annotated[int, f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"]
    mini_batch: Annotated[int, f"{_ACTOR}.ppo_mini_batch_size"]  # prompts
    param_offload: Annotated[bool, f"{_ACTOR}.fsdp_config.param_offload"]
    optimizer_offload: Annotated[bool, f"{_ACTOR}.fsdp_config.optimizer_offload"]
    offload_policy: Annotated[bool, f"{_ACTOR}.fsdp_config.offload_policy"]
    reshard: Annotated[bool, f"{_ACTOR}.fsdp_config.reshard_after_forward"]
    fsdp_size: Annotated[int, f"{_ACTOR}.fsdp_config.fsdp_size"]  # -1: all devices
    defer_gradients: Annotated[bool, f"{_ACTOR}.fsdp_config.use_no_sync_for_gradient_accumulation"]
    checkpointing: Annotated[bool, f"{_MODEL}.enable_gradient_checkpointing"]
    fused_head: Annotated[bool, f"{_MODEL}.use_fused_kernels"]
    lora_rank: Annotated[int, f"{_MODEL}.lora_rank"]
    utilization: Annotated[float, f"{_ROLLOUT}.gpu_memory_utilization"]
    tensor_parallel: Annotated[int, f"{_ROLLOUT}.tensor_model_parallel_size"]
    max_num_seqs: Annotated[int, f"{_ROLLOUT}.max_num_seqs"]
    max_num_batched_tokens: Annotated[int, f"{_ROLLOUT}.max_num_batched_tokens"]
    max_model_len: Annotated[int, f"{_ROLLOUT}.max_model_len"]
    eager: Annotated[bool, f"{_ROLLOUT}.enforce_eager"]
    frees_cache: Annotated[bool, f"{_ROLLOUT}.free_cache_engine"]
    sleep_mode: Annotated[bool, f"{_ROLLOUT}.enable_sleep_mode"]
    bucket_mib: Annotated[int, f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"]
    agent_workers: Annotated[int, f"{_ROLLOUT}.agent.num_workers"]
    sessions: Annotated[int, f"{_ROLLOUT}.n"]
    prompts: int  # for which a step asks at once
    sequences: int  # training sequences per session
    teacher_copies: int  # of the trained weights, for a distillation's teacher: its own, and the live ones meanwhile
    compares_logits: bool  # a distillation keeps its teachers' hidden states and heads during the student's pass
    start_copies: int  # of the trained weights, on the host: those of a step's beginning, and live ones meanwhile
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
    def from_config(cls, config: DictConfig, objective: Objective) -> Setup:
        """Read a composed config."""
        known = {name: OmegaConf.select(config, key) for name, key in KEYS.items()}
        ref = config.actor_rollout_ref
        formats = number_formats(ref.actor.fsdp_config, f"{_ACTOR}.fsdp_config")
        lora = int(known["lora_rank"] or 0)
        needs_reference = bool(ref.actor.use_kl_loss) and not lora
        separate = config.trainer.v1.trainer_mode == SEPARATE
        parts = config.trainer.v1.separate_async.parameter_sync_step
        vllm = (ref.rollout.get("engine_kwargs") or {}).get("vllm") or {}
        known |= {
            "lora_rank": lora,
            "sleep_mode": known["sleep_mode"] is not False,  # null means verl's default, true
            "prompts": int(config.data.train_batch_size),
            "sequences": len(objective.kinds),
            "teacher_copies": 2 if objective.teacher == "feedback" and config.algorithm.sdpo.teacher != "live" else 0,
            "compares_logits": objective.compares_logits,
            "start_copies": (1 + (parts > 1)) if separate else 0,
            **formats,
            "optimizer_states": 2 if "8bit" in str(ref.actor.optim.get("optimizer")) else 2 * formats["master"],
            "rollout_number": 1 if ref.rollout.get("quantization") else number_bytes(ref.rollout.dtype, "dtype"),
            "merges_lora": bool((ref.model.get("lora") or {}).get("merge", False)),
            "reference": number_bytes(ref.ref.fsdp_config.model_dtype, "ref model_dtype") if needs_reference else 0,
            "text_only": bool(vllm.get("language_model_only")),
            "colocated": not separate,
            "exports_model": "hf_model" in ref.actor.checkpoint.save_contents,
        }
        return cls(**known)

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

    @property
    def training(self) -> Training:
        """The training process, for the arithmetic."""
        return Training(
            devices=self.shards,
            lora_rank=self.lora_rank,
            master=self.master,
            frozen=self.frozen,
            compute=self.compute,
            reduce=self.reduce,
            optimizer=self.optimizer_states,
            checkpointing=self.checkpointing,
            reshard=self.reshard,
            keep_gathered_gradients=self.defer_gradients and self.update_tokens > self.tokens,
            offloaded=self.offload_policy,
            full_logits=not self.fused_head,
            teacher_copies=self.teacher_copies,
        )

    @property
    def scoring(self) -> Training:
        """A checkpoint that teaches, for the arithmetic: it only scores, and its shards stay on the host."""
        return Training(
            devices=self.shards,
            master=self.compute,
            compute=self.compute,
            optimizer=0,
            reshard=self.reshard,
            offloaded=True,
            full_logits=not self.fused_head,
        )


# Field of `Setup` -> key of the config. Remedies use the same keys.
KEYS: dict[str, str] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Setup, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}


def number_formats(engine: Mapping[str, Any], section: str) -> dict[str, int]:
    """Bytes per trained (`master`), frozen and gathered (`compute`) weight, and per gradient in exchange (`reduce`).

    Args:
        engine: the section of an FSDP engine; `section` is its name, for messages.
    """
    precision = engine.get("mixed_precision") or {}
    compute = number_bytes(precision.get("param_dtype", "bf16"), f"{section}.mixed_precision.param_dtype")
    return {
        "master": number_bytes(engine.get("model_dtype") or "fp32", f"{section}.model_dtype"),
        "frozen": compute,  # ditto/model/engine.py stores frozen weights like this
        "compute": compute,
        "reduce": number_bytes(precision.get("reduce_dtype", "fp32"), f"{section}.mixed_precision.reduce_dtype"),
    }


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
