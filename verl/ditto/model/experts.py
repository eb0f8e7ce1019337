"""Experts that teach: frozen checkpoints that score what the student sampled (`algorithm.distill.teachers`).

Each is a model of its own, with an engine of its own, so it may be larger or of another family than the student; it
must have the student's tokens. Its weights are sharded over the ranks and stay on the host in the number format of the
computation; FSDP2 brings one layer at a time to the device. A teacher scores only the rows of its tasks, and a
micro-batch without such rows on any rank costs nothing.

verl's own distillation is not used: its teachers are vLLM servers on devices of their own, which return the teacher's
most probable tokens, while reverse KL needs the student's; and the same weights give other numbers there, so a student
that equals its teacher would be trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict

from ditto.model import teaching
from ditto.model.teaching import TeacherOutput
from ditto.model.trained_shards import reshard, shard, whole

if TYPE_CHECKING:
    from ditto.model.engine import DittoEngine


def load(student: DittoEngine, checkpoint: str) -> DittoEngine:
    """An engine that only scores, like the student's: same sharding, kernels and number format of the computation."""
    own = {"path": checkpoint, "enable_gradient_checkpointing": False}
    no_tokenizer = {"load_tokenizer": False, "custom_chat_template": None}
    no_adapter: dict[str, Any] = {"lora_rank": 0, "lora_adapter_path": None, "lora": {}}
    read_anew = dict.fromkeys(
        ("local_path", "hf_config_path", "local_hf_config_path", "tokenizer_path", "local_tokenizer_path", "hf_config")
        + ("generation_config", "tokenizer", "processor", "architectures")
    )
    precision = student.engine_config.mixed_precision or {}
    teacher = type(student)(
        model_config=replace(student.model_config, **own, **no_tokenizer, **no_adapter, **read_anew),
        engine_config=replace(
            student.engine_config, forward_only=True, model_dtype=precision.get("param_dtype", "bf16")
        ),
        optimizer_config=student.optimizer_config,
        checkpoint_config=student.checkpoint_config,
    )
    teacher.initialize()
    teacher.module.eval()
    return teacher


def score(teachers: Sequence[DittoEngine], micro_batch: TensorDict, needs: str, group: Any) -> list[TeacherOutput]:
    """Let each row's teacher score it.

    Args:
        teachers: by their numbers.
        micro_batch: this rank's rows, with the columns of a distillation by experts.
        needs: "log_probs" or "hidden_states", of the teacher.
        group: the ranks with other rows; None: there are none.
    """
    rows = [teaching.rows_with_teacher(micro_batch, number) for number in range(len(teachers))]
    needed = torch.tensor([len(of_teacher) for of_teacher in rows], device=micro_batch["input_ids"].device)
    if group is not None:
        torch.distributed.all_reduce(needed, op=torch.distributed.ReduceOp.MAX, group=group)
    scored = []
    for teacher, mine, everywhere in zip(teachers, rows, needed.tolist(), strict=True):
        if not everywhere:
            continue
        chosen = mine if len(mine) else teaching.shortest_row(micro_batch)
        values = teacher.score(teaching.teacher_batch(micro_batch, chosen, "prompts"), needs)
        head = None
        if needs == "hidden_states":
            weight = teacher.head_weight()
            reshard(teacher.module)  # the shard is read, and the head may be part of the root
            head = whole(weight, shard(weight))
        reshard(teacher.module)
        scored.append(TeacherOutput(mine, values if len(mine) else values[:0], head))
    return scored
