"""A teacher's forward pass over a micro-batch: what the loss of a distillation compares the student with.

The engine runs it just before the student's forward pass, so nothing of the teacher travels through verl's queue, and
SDPO's teacher has the weights of this moment. A teacher reads a prompt (SDPO's the one with the feedback, an expert the
student's own) and the draft's own response, with everything that others said in between.

Experts are frozen checkpoints (`algorithm.distill.teachers`), each a model with an engine of its own, so one may be
larger or of another family than the student; it must have the student's tokens. Its weights are sharded over the ranks
and stay on the host in the number format of the computation; FSDP2 brings one layer at a time to the device. verl's own
distillation is not used: its teachers are vLLM servers on devices of their own, which return the teacher's most
probable tokens, while reverse KL needs the student's; and the same weights give other numbers there, so a student that
equals its teacher would be trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from ditto.batch.jagged import jagged, row_lengths, with_values
from ditto.model.chunked_head import TeacherScores
from ditto.model.teacher_weights import reshard, shard, whole
from ditto.objectives.losses import DISTILL_WEIGHTS, TEACHERS
from ditto.objectives.options import ComparisonOptions

if TYPE_CHECKING:
    from ditto.model.engine import DittoEngine

_SETTINGS = ("use_remove_padding", "use_fused_kernels", "pad_mode", "temperature")


@dataclass(frozen=True)
class TeacherOutput:
    """A teacher's output for rows of a micro-batch.

    Attributes:
        rows: int64, which rows these are.
        values: of every response token of these rows, row by row: (tokens,) log-probs, or (tokens, hidden size) the
            teacher's hidden states that predict them.
        head: (vocabulary, hidden size), the teacher's head for these hidden states; None: the student's.
    """

    rows: Tensor
    values: Tensor
    head: Tensor | None = None


def rows_with_teacher(micro_batch: TensorDict, teacher: int | None = None) -> Tensor:
    """The rows of a micro-batch that are distilled (int64): all of them, or those of the teacher of this number."""
    taught = [bool(row.any()) for row in micro_batch[DISTILL_WEIGHTS].unbind()]
    if teacher is not None:
        numbers = micro_batch[TEACHERS].values().tolist()
        taught = [one and number == teacher for one, number in zip(taught, numbers, strict=True)]
    return torch.tensor([i for i, one in enumerate(taught) if one], dtype=torch.int64)


def scores_of(teacher: DittoEngine, micro_batch: TensorDict, rows: Tensor, prompts: str, needs: str) -> Tensor:
    """A teacher's output (`TeacherOutput.values`) for these rows, with the prompts of this column.

    A rank without rows scores its shortest one and drops the result: all must join a forward pass of FSDP.
    """
    shortest = row_lengths(micro_batch["input_ids"]).argmin().reshape(1).cpu()
    values = teacher.score(teacher_batch(micro_batch, rows if len(rows) else shortest, prompts), needs)
    return values if len(rows) else values[:0]


def teacher_batch(micro_batch: TensorDict, rows: Tensor, prompts: str) -> TensorDict:
    """These rows of a micro-batch as a teacher reads them, with the prompts of this column."""
    sources = {"prompts": prompts, "responses": "responses", "response_mask": "response_mask"}
    of_rows = {
        name: [values[i] for i in rows.tolist()]
        for name, values in ((name, micro_batch[source].unbind()) for name, source in sources.items())
    }
    ids = [torch.cat(pair) for pair in zip(of_rows["prompts"], of_rows["responses"], strict=True)]
    positions = [torch.arange(len(row), device=row.device) for row in ids]
    of_rows |= {"input_ids": ids, "position_ids": positions}
    columns = {name: jagged(values) for name, values in of_rows.items()}
    if micro_batch["position_ids"].dim() == 3:  # vision models count in several dimensions; text has the same in all
        one, dimensions = columns["position_ids"], micro_batch["position_ids"].shape[1]
        columns["position_ids"] = torch.nested.nested_tensor_from_jagged(
            one.values().expand(dimensions, -1).contiguous(), one.offsets(), jagged_dim=2
        )
    settings = {name: micro_batch[name] for name in _SETTINGS if name in micro_batch}
    return tu.get_tensordict(columns, {name: tu.unwrap_non_tensor_data(value) for name, value in settings.items()})


def next_token_places(prompts: Tensor, responses: Tensor) -> Tensor:
    """Places in the packed rows (prompt, response) whose next token is a response token; int64, row by row."""
    prompt, response = row_lengths(prompts), row_lengths(responses)
    ends = (prompt + response).cumsum(0)
    starts = ends - response - 1
    first = response.cumsum(0) - response
    offset = torch.arange(int(response.sum()), device=response.device) - first.repeat_interleave(response)
    return starts.repeat_interleave(response) + offset


def log_prob_column(micro_batch: TensorDict, scored: Sequence[TeacherOutput]) -> Tensor:
    """A jagged column of all rows' response tokens: what the row's teacher says, 0 where there is none."""
    responses = micro_batch["responses"]
    dtype = scored[0].values.dtype if scored else torch.float32
    column = torch.zeros(int(row_lengths(responses).sum()), dtype=dtype, device=responses.device)
    for each in scored:
        column[_of_rows(responses, each.rows)] = each.values
    return with_values(column, responses)


def teacher_scores(micro_batch: TensorDict, scored: TeacherOutput, options: ComparisonOptions) -> TeacherScores:
    """The teacher's side of the comparison at the tokens of these rows that are distilled."""
    weights = micro_batch[DISTILL_WEIGHTS].unbind()
    distilled = torch.cat([weights[0][:0] != 0, *(weights[i] != 0 for i in scored.rows.tolist())])
    places = next_token_places(micro_batch["prompts"], micro_batch["responses"])
    return TeacherScores(
        positions=places[_of_rows(micro_batch["responses"], scored.rows)][distilled],
        hidden=scored.values[distilled],
        weight=None if scored.head is None else scored.head.to(scored.values.dtype),
        alpha=options.alpha,
        top_k=options.top_k,
        tail=options.tail,
    )


def _of_rows(responses: Tensor, rows: Tensor) -> Tensor:
    """Say of each response token of the micro-batch if it belongs to one of these rows: bool, row by row."""
    lengths = row_lengths(responses)
    chosen = torch.zeros(len(lengths), dtype=torch.bool, device=lengths.device)
    chosen[rows.to(lengths.device)] = True
    return chosen.repeat_interleave(lengths)


# ---- experts ---------------------------------------------------------------------------------------------------------


def load_expert(student: DittoEngine, checkpoint: str) -> DittoEngine:
    """An engine that only scores, like the student's: same sharding, kernels and number format of the computation."""
    own: dict[str, Any] = {"path": checkpoint, "enable_gradient_checkpointing": False}
    own |= {"load_tokenizer": False, "custom_chat_template": None}
    own |= {"lora_rank": 0, "lora_adapter_path": None, "lora": {}}
    read_anew = dict.fromkeys(
        ("local_path", "hf_config_path", "local_hf_config_path", "tokenizer_path", "local_tokenizer_path", "hf_config")
        + ("generation_config", "tokenizer", "processor", "architectures")
    )
    precision = student.engine_config.mixed_precision or {}
    teacher = type(student)(
        model_config=replace(student.model_config, **own, **read_anew),
        engine_config=replace(
            student.engine_config, forward_only=True, model_dtype=precision.get("param_dtype", "bf16")
        ),
        optimizer_config=student.optimizer_config,
        checkpoint_config=student.checkpoint_config,
    )
    teacher.initialize()
    teacher.module.eval()
    return teacher


def score_by_experts(
    teachers: Sequence[DittoEngine], micro_batch: TensorDict, needs: str, group: Any
) -> list[TeacherOutput]:
    """Let each row's teacher score it.

    Args:
        teachers: by their numbers.
        micro_batch: this rank's rows, with the columns of a distillation by experts.
        needs: "log_probs" or "hidden_states", of the teacher.
        group: the ranks with other rows; None: there are none.
    """
    rows = [rows_with_teacher(micro_batch, number) for number in range(len(teachers))]
    needed = torch.tensor([len(of_teacher) for of_teacher in rows], device=micro_batch["input_ids"].device)
    if group is not None:
        torch.distributed.all_reduce(needed, op=torch.distributed.ReduceOp.MAX, group=group)
    scored = []
    for teacher, mine, everywhere in zip(teachers, rows, needed.tolist(), strict=True):
        if not everywhere:
            continue
        values = scores_of(teacher, micro_batch, mine, "prompts", needs)
        head = None
        if needs == "hidden_states":
            weight = teacher.head_weight()
            reshard(teacher.module)  # the shard is read, and the head may be part of the root
            head = whole(weight, shard(weight))
        reshard(teacher.module)
        scored.append(TeacherOutput(mine, values, head))
    return scored
