"""verl's FSDP engine, with the chunked head, and with frozen weights stored in the dtype of the computation.

Trained weights must be float32: an AdamW step at a learning rate of 5e-6 is too small to change a bfloat16 weight of
ordinary size. verl has one dtype for the whole model (`fsdp_config.model_dtype`) and casts new LoRA factors to it, so a
float32 adapter means a float32 base: 4 bytes per weight on the GPUs, in host memory and in every checkpoint, rounded to
bfloat16 before each use. FSDP2 requires one dtype only for the *trained* parameters of a group (torch 2.13,
FSDPParamGroup._init_mp_dtypes), so the frozen base can be stored in bfloat16. Updates are bitwise the same.

For objectives that distil, the engine runs the teachers before each micro-batch of an update (`teaching.py`). Where the
trainer says so, it computes a micro-batch as a tree of its rows (`prefix_tree/`).

verl finds this engine in its registry by the vendor of the device; `model.external_lib` imports it before a model is
built.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict
from tensordict import TensorDict
from torch import Tensor
from torch.distributed.tensor import DTensor
from verl.utils import tensordict_utils as tu
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.device import get_device_id
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

from ditto.batch.jagged import response_tokens, row_lengths
from ditto.model import teaching
from ditto.model.chunked_head import TeacherScores, with_chunked_head
from ditto.model.prefix_tree.packing import TreePack, wants_tree
from ditto.model.teacher_weights import TeacherWeights
from ditto.model.teacher_weights import reshard as reshard_parameters
from ditto.model.teaching import TeacherOutput
from ditto.objectives.losses import DIVERGENCE, TEACHER_LOG_PROBS, TEACHER_PROMPTS, TEACHERS
from ditto.objectives.options import ComparisonOptions, DistillOptions, SdpoOptions
from ditto.policies import FIRST_ADAPTER, adapters_of
from ditto.run import manifest, reshard
from ditto.settings import BadConfig
from ditto.verl_hooks.dropout import without_dropout

logger = logging.getLogger(__name__)


class CheckpointManager(FSDPCheckpointManager):  # type: ignore[misc,unused-ignore]
    """verl's manager of an FSDP2 engine, for checkpoints of any number of ranks.

    Of the optimizer it restores the state, and not the settings: learning rate, weight decay and betas are those of the
    run's config, and the schedule goes on from the checkpoint's step. Random states are restored only if the checkpoint
    has the same number and arrangement of ranks.
    """

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        if self.optimizer is None or self.lr_scheduler is None:  # of a model that is not trained
            self._load(local_path, *args, **kwargs)
            return
        settings = [
            {name: value for name, value in group.items() if name != "params"} for group in self.optimizer.param_groups
        ]
        rates = list(self.lr_scheduler.base_lrs)
        self._load(local_path, *args, **kwargs)
        schedule = self.lr_scheduler
        schedule.base_lrs = rates
        groups = zip(self.optimizer.param_groups, settings, rates, schedule.lr_lambdas, strict=True)
        for group, own, rate, factor in groups:
            group.update(own, lr=rate * factor(schedule.last_epoch))

    def _load(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        actor = Path(local_path)
        written, ranks = manifest.writers(actor), int(self.world_size)
        # Without any file verl names the one that it misses.
        if written is None or (written == ranks and reshard.sliced_alike(actor, ranks, self.model)):
            super().load_checkpoint(local_path, *args, **kwargs)
            return
        if self.should_load_model:
            state = reshard.model_state(actor, written, self.model)
            self.model.load_state_dict(state, strict=not self.is_lora_only_state_dict(state))
        if self.should_load_optimizer:
            self.optimizer.load_state_dict(reshard.optimizer_state(actor, written, self.optimizer))
        schedule = reshard.scheduler_state(actor, written) if self.should_load_extra else None
        if schedule is not None and self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(schedule)


@EngineRegistry.register(
    model_type="language_model", backend=["fsdp2"], device="cuda", vendor=["nvidia", "cpu"]
)  # the CPU platform asks for verl's "cuda" engines (ditto/verl_hooks/platform_cpu.py)
class DittoEngine(FSDPEngineWithLMHead):
    """Trains in `model_dtype`, keeps frozen weights in `mixed_precision.param_dtype` (bfloat16 unless set)."""

    checkpoint_manager: Any
    # Class attributes, so that an engine that never distils needs no further set-up.
    teacher: TeacherWeights | None = None  # None: the live weights
    teacher_rate: float | None = None  # None: the teacher's weights stay as they are
    start_is_known: bool = True  # these are the weights that the run began with, or the teacher's copies are
    experts: Sequence[DittoEngine] = ()  # checkpoints that teach, by their numbers
    teacher_scores: Sequence[TeacherScores] = ()  # of the micro-batch whose student is being run

    def initialize(self) -> None:
        super().initialize()
        verls = self.checkpoint_manager
        self.checkpoint_manager = CheckpointManager(
            model=verls.model,
            optimizer=verls.optimizer,
            lr_scheduler=verls.lr_scheduler,
            processing_class=verls.processing_class,
            checkpoint_config=verls.checkpoint_config,
            trust_remote_code=verls.trust_remote_code,
        )

    def _build_module(self) -> torch.nn.Module:
        module: torch.nn.Module = super()._build_module()
        options = self.model_config.fused_kernel_options or {}
        if self.model_config.use_fused_kernels and options.get("impl_backend") == "chunked":
            module.__class__ = with_chunked_head(type(module))
        return module

    def _build_lora_module(self, module: torch.nn.Module) -> torch.nn.Module:
        with warnings.catch_warnings():  # peft warns if a text model has no module that exclude_modules matches
            warnings.filterwarnings("ignore", "You have passed exclude_modules")
            peft_model: torch.nn.Module = super()._build_lora_module(module)
        for name in adapters_of(self.model_config.lora)[1:]:
            peft_model.add_adapter(name, peft_model.peft_config[FIRST_ADAPTER])
        self._train_every_adapter(peft_model)
        trained = [parameter for parameter in peft_model.parameters() if parameter.requires_grad]
        for parameter in trained[1:]:  # verl has stored the first adapter in the dtype of the model
            parameter.data = parameter.data.to(trained[0].dtype)
        mixed_precision: dict[str, Any] = self.engine_config.mixed_precision or {}
        compute_dtype = PrecisionType.to_dtype(mixed_precision.get("param_dtype", "bf16"))
        for parameter in peft_model.parameters():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(compute_dtype)
        return peft_model

    def get_per_tensor_param(self, *args: Any, **kwargs: Any) -> tuple[Iterable[tuple[str, Tensor]], Any]:
        """The weights that the rollout engine gets, by name, and PEFT's config; of a tied model without the head.

        The head is the embedding's weight. vLLM 0.31 refuses a bucket that has the head and not the embedding.
        """
        weights, config = super().get_per_tensor_param(*args, **kwargs)
        if self.model_config.hf_config.get_text_config().tie_word_embeddings:
            weights = ((name, weight) for name, weight in weights if not name.endswith("lm_head.weight"))
        return weights, config

    # ---- several policies: the adapter that is not in use gets no gradient, so its AdamW state does not move ---------

    moves_schedule: bool = True  # False: another policy's update in this step will move the learning rate

    @staticmethod
    def _train_every_adapter(module: torch.nn.Module) -> None:
        """PEFT freezes the adapters that are not in use; FSDP2 and the optimizer must know all of them."""
        for name, parameter in module.named_parameters():
            if ".lora_" in name:
                parameter.requires_grad_(True)

    def choose_adapter(self, name: str, moves_schedule: bool = True) -> None:
        """Compute with this adapter from now on, and train it alone."""
        reshard_parameters(self.module)
        self.module.set_adapter(name)
        self._train_every_adapter(self.module)
        self.moves_schedule = moves_schedule

    @contextmanager
    def disable_adapter(self) -> Iterator[None]:
        with super().disable_adapter():
            yield
        self._train_every_adapter(self.module)

    def lr_scheduler_step(self) -> float:
        rate: float = super().lr_scheduler_step() if self.moves_schedule else self.lr_scheduler.get_last_lr()[0]
        return rate

    def adapter_weights(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The whole tensors of an adapter by PEFT's names, on the host, and its config: what the servers load."""
        state = get_peft_model_state_dict(self.module, adapter_name=name)
        gathered = {
            key: (value.full_tensor() if isinstance(value, DTensor) else value).detach().cpu()
            for key, value in state.items()
        }
        return gathered, self.module.peft_config[name].to_dict()

    # ---- distillation -------------------------------------------------------------------------------------------

    def forward_step(self, micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> Any:
        chosen = None if forward_only else tu.get_non_tensor_data(micro_batch, "distillation", None)
        if chosen is None:
            return super().forward_step(micro_batch, loss_function, forward_only)
        micro_batch = micro_batch.to(get_device_id())
        scored: list[TeacherOutput] = []
        if chosen["teacher"] == "experts":
            options: ComparisonOptions = DistillOptions(**chosen["options"])
            if TEACHERS in micro_batch:
                group = self.get_data_parallel_group()
                scored = teaching.score_by_experts(self.experts, micro_batch, chosen["needs"], group)
        else:
            options = SdpoOptions(**chosen["options"])
            self._follow(options)
            if TEACHER_PROMPTS in micro_batch:
                scored = [self._score_with_feedback(micro_batch, chosen["needs"], options)]
        if chosen["needs"] == "log_probs":
            micro_batch[TEACHER_LOG_PROBS] = teaching.log_prob_column(micro_batch, scored)
        else:
            self.teacher_scores = [teaching.teacher_scores(micro_batch, each, options) for each in scored]
        try:
            return super().forward_step(micro_batch, loss_function, forward_only)
        finally:
            self.teacher_scores = []

    def load_teachers(self, checkpoints: Sequence[str]) -> None:
        """Load the checkpoints that teach; their places are their numbers. They stay on the host between passes."""
        self.experts = [teaching.load_expert(self, checkpoint) for checkpoint in checkpoints]

    def _follow(self, options: SdpoOptions) -> None:
        """Have SDPO's teacher: the live weights, or a copy that is made here.

        Raises:
            BadConfig: the weights that the run began with should teach, and its checkpoint does not hold them.
        """
        if options.teacher == "base" and not self.start_is_known:
            raise BadConfig(
                "algorithm.sdpo.teacher=base: the checkpoint lacks the weights of its run's start. Use ema or live."
            )
        if options.teacher == "live":
            self.teacher = None  # a resumed checkpoint may have had one
        if options.teacher != "live" and (self.teacher is None or self.teacher.kind != options.teacher):
            if self.teacher is not None:  # those of a moving average are not the weights that the run started with
                logger.warning(
                    "The checkpoint's teacher is of kind %s: %s starts anew", self.teacher.kind, options.teacher
                )
            self.teacher = TeacherWeights(self.module, options.teacher)
        self.teacher_rate = options.teacher_rate if options.teacher == "ema" else None

    def _score_with_feedback(self, micro_batch: TensorDict, needs: str, options: SdpoOptions) -> TeacherOutput:
        """Score the draft by the policy itself, with the teacher's weights, in the feedback context."""
        rows, moved = teaching.rows_with_teacher(micro_batch), None if options.teacher == "live" else self.teacher
        with nullcontext() if moved is None else moved.active():
            values = teaching.scores_of(self, micro_batch, rows, TEACHER_PROMPTS, needs)
        head = None if moved is None or needs == "log_probs" else moved.of(self.head_weight())
        return TeacherOutput(rows, values, head)

    @torch.no_grad()
    def score(self, batch: TensorDict, needs: str) -> Tensor:
        """The model's output for every response token: (tokens,) "log_probs", or the "hidden_states" that predict them,
        (tokens, hidden size). Without dropout: a teacher says the same of the same answer."""
        inputs, arguments = self.prepare_model_inputs(batch)
        dtype = getattr(self, "_autocast_dtype", torch.bfloat16)
        device = batch["input_ids"].device.type
        if needs == "hidden_states":
            inputs["hidden_only"] = True
        precision = nullcontext() if dtype == torch.float32 else torch.autocast(device_type=device, dtype=dtype)
        with precision, without_dropout(self.module):
            output = self.module(**inputs, use_cache=False)
            if needs == "log_probs":
                log_probs = self.prepare_model_outputs(output, arguments, batch, None)["log_probs"]
                return response_tokens(log_probs, batch["response_mask"]).values()
        hidden: Tensor = output.hidden_states[0][0, teaching.next_token_places(batch["prompts"], batch["responses"])]
        return hidden

    def head_weight(self) -> torch.nn.Parameter:
        """The weight of the model's output layer."""
        model = self.module.get_base_model() if hasattr(self.module, "get_base_model") else self.module
        weight: torch.nn.Parameter = model.get_output_embeddings().weight
        return weight

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        if wants_tree(micro_batch):
            pack = TreePack(micro_batch)
            inputs, arguments = super().prepare_model_inputs(pack.inputs)
            pack.complete(inputs, arguments)
            return inputs, arguments | {"tree_pack": pack}
        inputs, arguments = super().prepare_model_inputs(micro_batch)
        if self.teacher_scores:
            inputs["teacher_scores"] = self.teacher_scores
        return inputs, arguments

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, Tensor]:
        pack: TreePack | None = output_args.get("tree_pack")
        if pack is not None:
            of_tree = super().prepare_model_outputs(
                pack.select(output), output_args, pack.outputs, logits_processor_func
            )
            return {name: pack.expand(column) for name, column in of_tree.items()}
        outputs: dict[str, Tensor] = super().prepare_model_outputs(
            output, output_args, micro_batch, logits_processor_func
        )
        if self.teacher_scores:
            ids = micro_batch["input_ids"]
            values = output.divergence.new_zeros(int(row_lengths(ids).sum()))
            places = torch.cat([scores.positions for scores in self.teacher_scores])
            values = values.index_put((places,), output.divergence)
            outputs[DIVERGENCE] = torch.nested.nested_tensor_from_jagged(values, ids.offsets())
        return outputs

    def optimizer_step(self) -> float:
        norm: float = super().optimizer_step()
        if self.teacher is not None and self.teacher_rate is not None and math.isfinite(norm):
            self.teacher.move(self.teacher_rate)
        return norm

    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        super().to(device=device, model=model, optimizer=optimizer, grad=grad)
        if model and device == "cpu" and self.teacher is not None:
            self.teacher.offload()

    # ---- checkpoints: a moving teacher is part of the run's state ------------------------------------------------

    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        super().save_checkpoint(local_path, *args, **kwargs)
        if self.teacher is not None:
            self.teacher.save(Path(local_path))

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        super().load_checkpoint(local_path, *args, **kwargs)
        self.teacher = TeacherWeights.saved(self.module, Path(local_path))
        self.start_is_known = self.teacher is not None and self.teacher.kind == "base"
