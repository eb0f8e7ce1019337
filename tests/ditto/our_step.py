"""A tiny step as the trainer and verl's engine compute it: the "ours" of test_update.py.

Records -> layout -> plan -> the trainer's `_compute_advantage` -> the forward step of our FSDP engine and our loss,
accumulated over micro-batches and (simulated) ranks, in float64.
"""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from transformers import Qwen3ForCausalLM
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils import tensordict_utils as tu
from verl.utils.seqlen_balancing import rearrange_micro_batches
from verl.utils.torch_functional import entropy_from_logits
from verl.workers.config import FSDPActorConfig

import ditto.batch.queue
from ditto.batch.minibatch_layout import (
    assign_mini_batches,
    balance_by_length,
    balance_groups,
    build_layout,
    padded_rows,
)
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.step_parts import StepParts
from ditto.model.engine import DittoEngine
from ditto.objectives import objective as objective_of
from ditto.objectives.losses import objective_loss
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Objective
from ditto.settings import RunSettings, Settings
from ditto.trainer_modes import DittoTrainerSync
from soul.record import AttemptRecord, SessionRecord
from tests.ditto import tiny_step

ACTOR = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 10.0}


class Batch:
    """What the trainer uses of verl's KVBatchMeta."""

    keys: tuple[str, ...] = ()
    partition_id = "train"
    fields: list[str] | None = None

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows


class Trainer(DittoTrainerSync):
    """The trainer without Ray: only what `_compute_advantage` needs."""

    def __init__(
        self, settings: Settings, step: StepBatch, loss_agg_mode: str, algorithm: dict[str, Any] | None = None
    ) -> None:
        self.settings = settings
        self.parts = StepParts([step])
        self.run_folder: Any = SimpleNamespace(write_traces=lambda *_args, **_kwargs: None)
        self.global_steps = self.local_trigger_step = 0
        self.config = OmegaConf.create(
            {
                "algorithm": algorithm or {},
                "actor_rollout_ref": {"actor": {"loss_agg_mode": loss_agg_mode}},
            }
        )


def nested(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def settings_of(objective: str | Objective, feedback_coef: float = 1.0, **options: Any) -> Settings:
    row = objective_of(objective) if isinstance(objective, str) else objective
    chosen = ObjectiveOptions(feedback_coef=feedback_coef, **options)
    return Settings(objective=row, options=chosen, run=RunSettings(dir="unused"))


def records_of(rows: list[tiny_step.Sequence_]) -> list[SequenceRecord]:
    """The records of these rows; the reward of a sequence that is not among them still counts."""
    drafts, refined = (
        {row.session: row.reward for row in [*tiny_step.SEQUENCES, *rows] if row.kind == kind}
        for kind in ("draft", "refined_base")
    )
    return [
        SequenceRecord(
            row.kind,
            row.prompt,
            row.session,
            row.valid,
            tokens=sum(row.mask),
            draft_reward=drafts.get(row.session),
            refined_reward=refined.get(row.session),
        )
        for row in rows
    ]


def step_data(
    rows: list[tiny_step.Sequence_],
    old: list[list[float]],
    settings: Settings,
    loss_agg_mode: str,
    ranks: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    algorithm: dict[str, Any] | None = None,
    rollout_shift: float = 0.0,
    teacher_prompts: Sequence[Sequence[int]] | None = None,
    tasks: Sequence[str] | None = None,
    skip_idle: bool = False,
    prompts_per_mini_batch: int = tiny_step.PROMPTS_PER_MINI_BATCH,
    sort_seed: str | None = None,
    as_trees: bool = False,
) -> tuple[StepBatch, TensorDict]:
    """What the workers get: rows in layout order, with the trainer's advantages and weights.

    With `sort_seed` the trainer sorts the rows first; `StepBatch.order` then says where each came from.
    """
    records = records_of(rows)
    for i, record in enumerate(records):
        record.refined_reward = record.refined_reward if settings.objective.refines else None
        record.teacher_prompt = tuple(teacher_prompts[i]) if teacher_prompts else ()
        record.task = tasks[i] if tasks else ""
    step = StepBatch(records, [])
    if sort_seed is not None:
        step.traces = [
            SessionRecord(task="tiny", number=0, row=ord(s.prompt), session=s.session, draft=AttemptRecord())
            for s in rows
        ]
        step.sort(sort_seed)
        rows, old = ([values[i] for i in step.order] for values in (rows, old))
    mini_batch = assign_mini_batches([r.prompt for r in step.records], prompts_per_mini_batch)
    trainer = Trainer(settings, step, loss_agg_mode, algorithm)
    step.plan(mini_batch, settings, loss_agg_mode, tiny_step.LOSS_SCALE)
    if skip_idle:
        kept = step.skip_idle(mini_batch)
        mini_batch, rows, old = ([values[i] for i in kept] for values in (mini_batch, rows, old))
    per_mini_batch, updates = padded_rows(mini_batch, ranks)
    padding, _ = construct_minimal_padding_template({"position_ids": torch.zeros(1)}, {}, tiny_step.EOS)
    samples = [
        {
            "prompts": torch.tensor(s.prompt_ids),
            "responses": torch.tensor(s.response_ids),
            "response_mask": torch.tensor(s.mask),
            "old_log_probs": torch.tensor(values, dtype=torch.float64),
        }
        for s, values in zip(rows, old, strict=True)
    ]
    while len(samples) < per_mini_batch * updates:
        samples.append(padding | {"old_log_probs": torch.zeros(1, dtype=torch.float64)})
    lengths = [len(s["prompts"]) + len(s["responses"]) for s in samples]
    if as_trees:
        layout = build_layout(mini_batch, step.row_sizes(lengths), ranks, per_mini_batch, balance_groups)
    else:
        layout = build_layout(mini_batch, lengths, ranks, per_mini_batch, balance_by_length)
    step.arrange(layout)
    samples = [samples[i] for i in layout.order]
    columns = {key: nested([s[key] for s in samples]) for key in ("prompts", "responses", "response_mask")}
    columns["old_log_probs"] = nested([s["old_log_probs"] for s in samples])
    columns["rollout_log_probs"] = nested([s["old_log_probs"] - rollout_shift for s in samples])

    step.columns = Columns(columns["response_mask"], columns["old_log_probs"], columns["rollout_log_probs"])
    written: dict[str, Tensor] = {}
    queue = SimpleNamespace(kv_batch_put=lambda fields, **_: written.update(fields.items()))
    monkeypatch.setattr(ditto.batch.queue, "tq", queue)
    trainer._compute_advantage(Batch(len(samples)), {})
    ids = [torch.cat([s["prompts"], s["responses"]]) for s in samples]
    data = tu.get_tensordict(
        {
            "input_ids": nested(ids),
            "position_ids": nested([torch.arange(len(row)) for row in ids]),
            "prompts": columns["prompts"],
            "responses": columns["responses"],
            "loss_mask": columns["response_mask"],
            "old_log_probs": columns["old_log_probs"],
            "response_mask": columns["response_mask"],
            **written,
        }
    )
    return step, data


def actor_config(loss_agg_mode: str, **terms: Any) -> FSDPActorConfig:
    return FSDPActorConfig(
        **terms,
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        loss_agg_mode=loss_agg_mode,
        use_torch_compile=False,
        **ACTOR,
    )


def engine_of(model: torch.nn.Module) -> DittoEngine:
    """Our engine around a plain float64 model: its forward step without FSDP."""
    engine = object.__new__(DittoEngine)
    engine.module = model
    engine.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)
    engine.compute_entropy_from_logits = entropy_from_logits
    engine.use_ulysses_sp = engine.pad_to_length = False
    engine._autocast_dtype = torch.float32  # no autocast
    engine.get_data_parallel_group = lambda: None
    return engine


def ours(
    model: torch.nn.Module,
    step: StepBatch,
    data: TensorDict,
    loss_agg_mode: str,
    settings: Settings,
    *,
    ranks: int,
    splits: int,
    update: int,
    engine: DittoEngine | None = None,
    temperature: float = 1.0,
    **terms: Any,
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of one mini-batch, as verl computes them: summed over micro-batches, averaged over ranks."""
    assert step.layout is not None
    engine = engine or engine_of(model)
    loss_function = partial(
        objective_loss,
        config=actor_config(loss_agg_mode, **terms),
        objective=settings.objective,
        options=settings.options,
    )
    model.zero_grad()
    per_rank, size = len(data) // ranks, step.layout.rows // ranks
    chunks = [
        tu.index_select_tensor_dict(
            data, torch.arange(r * per_rank + update * size, r * per_rank + (update + 1) * size)
        )
        for r in range(ranks)
    ]
    total = 0.0
    for chunk in chunks:
        micro_batches, _ = rearrange_micro_batches(chunk, max_token_len=1 << 20, min_num_micro_batch=splits)
        assert len(micro_batches) == splits
        for micro_batch in micro_batches:
            tu.assign_non_tensor(
                micro_batch,
                use_remove_padding=True,
                temperature=temperature,
                calculate_entropy=bool(terms),
                global_batch_size=step.layout.rows,
                batch_num_tokens=int(sum(c["loss_mask"].values().sum() for c in chunks)),
                dp_size=ranks,
                use_fused_kernels=type(model) is not Qwen3ForCausalLM,
                distillation=settings.distillation,
            )
            loss, _ = engine.forward_step(micro_batch, loss_function=loss_function, forward_only=False)
            (loss / ranks).backward()
            total += loss.item() / ranks
    return total, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_update(
    loss: float, gradients: dict[str, Tensor], expected: Tensor, theirs: torch.nn.Module, tolerance: float
) -> None:
    """Compare the loss and every gradient of our update with those of a formula.

    Args:
        expected: the formula's loss; `theirs`: the model that it was computed with, without gradients.
        tolerance: of the loss, and of each gradient's difference by its norm; relative.
    """
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=tolerance, abs=1e-9)
    for name, parameter in theirs.named_parameters():
        assert parameter.grad is not None
        error = (gradients[name] - parameter.grad).norm() / parameter.grad.norm()
        assert error <= tolerance, (name, error)
