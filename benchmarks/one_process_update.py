"""The trainer's step without verl's queue and without Ray: verl's worker as an object, columns as tensors.

What `ditto.trainer.DittoTrainer` does between the rollout and the weight sync, for one rank: lay the sequences out in
mini-batches, compute pi_old in the context that is trained (where `algorithm.old_logp` needs it), then advantages,
weights and the update. All of it is computed by the trainer's own parts; this file only puts them together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from torch import Tensor, nn
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from ditto.batch import metrics
from ditto.batch.jagged import jagged, response_tokens
from ditto.batch.minibatch_layout import (
    assign_mini_batches,
    balance_by_length,
    balance_groups,
    build_layout,
    padded_rows,
)
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.memory.cpu import fit
from ditto.model.prefix_tree.eligibility import ineligible_reason
from ditto.model.prefix_tree.packing import USE_PREFIX_TREE
from ditto.objectives.losses import PLACES, objective_loss
from ditto.old_log_probs import PiOld
from ditto.rollout import sync_alarm
from ditto.settings import BadConfig, Settings
from ditto.verl_hooks.actor_worker import ActorWorker, places
from soul.record import SessionRecord

MODEL_COLUMNS = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask")


def actor_worker(config: DictConfig, settings: Settings) -> Any:
    """The actor worker as the only rank, with our loss.

    Raises:
        BadConfig: the run needs a worker or a weight sync that one process does not have.
    """
    actor = config.actor_rollout_ref.actor
    if actor.use_kl_loss or config.algorithm.use_kl_in_reward:
        raise BadConfig("One process has no reference model: use_kl_loss and use_kl_in_reward need Ray.")
    if config.actor_rollout_ref.model.get("lora_rank", 0) > 0:
        raise BadConfig("The sampler of one process takes whole weights: actor_rollout_ref.model.lora_rank must be 0.")
    fit(config)  # what the launcher's dry run chooses
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    worker: Any = ActorWorker(config.actor_rollout_ref, role="actor")
    worker.init_model()
    worker.actor.engine.load_teachers(settings.expert_teachers)
    worker.set_loss_fn(
        partial(
            objective_loss,
            config=omega_conf_to_dataclass(actor),
            objective=settings.objective,
            options=settings.options,
        )
    )
    return worker


class Update:
    """Learns from the sequences of a step.

    Attributes:
        batch: of the last step.
    """

    def __init__(self, config: DictConfig, settings: Settings, filler: int) -> None:
        self.actor = config.actor_rollout_ref.actor
        self.correction = config.algorithm.get("rollout_correction")
        self.settings = settings
        self.filler = filler
        self.as_trees = ineligible_reason(config, settings) is None
        self.worker = actor_worker(config, settings)
        self.pi_old = PiOld.chosen(config, settings, self.worker.active_dropout())
        self.batch: StepBatch | None = None

    def __call__(
        self, step: int, outputs: Sequence[AgentLoopOutput], traces: Sequence[SessionRecord]
    ) -> dict[str, float]:
        """Train on the sequences of a step. Returns metrics."""
        records = [SequenceRecord(**output.extra_fields["ditto"]) for output in outputs]
        batch = self.batch = StepBatch(records, list(traces), list(records))
        batch.sort(f"{self.actor.data_loader_seed}:{step}")
        samples = [_sample(outputs[i]) for i in batch.order]
        needs_pass = self.pi_old.source != "update" or not any(record.valid for record in records)
        numbers = self._old_log_probs(batch, samples) if needs_pass else {}
        data = self._arranged(batch, samples)
        numbers |= metrics.sequences(batch, teaches_feedback=self.settings.objective.teacher == "feedback")
        assert batch.columns is not None and batch.layout is not None
        correction = batch.correction(self.correction)
        if correction is not None:
            numbers |= correction[1]
        if not numbers["ditto/sequences_trained"]:
            return numbers | {"actor/updates": 0, "actor/grad_norm": 0.0}
        data.update(batch.loss_columns(correction[0] if correction else None))
        if needs_pass:
            return numbers | self._update(data, batch.layout.rows)
        data[PLACES] = places(len(data))
        numbers |= self._update(data, batch.layout.rows)
        batch.measured = [False] * len(data)
        output, mask = self.worker.update_outputs(data), batch.columns.mask
        batch.measure(range(len(data)), response_tokens(output["log_probs"], mask))
        return numbers | _of_the_actor(batch, output["entropy"])

    def copy_weights(self, model: nn.Module) -> None:
        """Copy the trained weights into a model of the same architecture."""
        weights, _ = self.worker.actor.engine.get_per_tensor_param()
        model.load_state_dict(dict(weights))

    def close(self) -> None:
        """End the process group of the worker."""
        torch.distributed.destroy_process_group()

    def _old_log_probs(self, batch: StepBatch, samples: list[dict[str, Tensor]]) -> dict[str, float]:
        """Add pi_old of every sequence in the context in which it is trained (`DittoTrainer._compute_old_log_prob`).

        Here this comes first, so that entropy and distances are means over all sequences, the skipped ones too, and
        with `old_logp=rollout` as well.
        """
        inputs = _jagged(samples, MODEL_COLUMNS)
        settings = {
            USE_PREFIX_TREE: self.as_trees,
            "calculate_entropy": True,
            "compute_loss": False,
            "temperature": 1.0,
        }
        tu.assign_non_tensor(inputs, **settings)
        output = self.worker.compute_log_prob(inputs)
        mask, rollout = inputs["response_mask"], jagged([sample["rollout_log_probs"] for sample in samples])
        batch.columns = Columns(mask, response_tokens(output["log_probs"], mask), rollout)
        for record, sample, old in zip(batch.records, samples, batch.columns.old_log_probs.unbind(), strict=True):
            sample["old_log_probs"] = sample["rollout_log_probs"] if record.kind in self.pi_old.sampled else old
        return _of_the_actor(batch, output["entropy"])

    def _arranged(self, batch: StepBatch, samples: list[dict[str, Tensor]]) -> TensorDict:
        """Plan the losses and lay the rows out (`DittoTrainer._balance_batch`). Returns the columns."""
        mini_batch = assign_mini_batches([record.prompt for record in batch.records], self.actor.ppo_mini_batch_size)
        batch.plan(mini_batch, self.settings, self.actor.loss_agg_mode, self.actor.loss_scale_factor or 1.0)
        if self.settings.options.skip_idle and not self.actor.entropy_coeff:
            kept = batch.skip_idle(mini_batch)
            mini_batch, samples = [mini_batch[i] for i in kept], [samples[i] for i in kept]
        rows, updates = padded_rows(mini_batch, 1)
        padding, _ = construct_minimal_padding_template(samples[0], {}, self.filler)
        padding["old_log_probs"] = padding["rollout_log_probs"]
        old = ["old_log_probs"] if "old_log_probs" in samples[0] else []  # without: the update is its own pi_old
        samples = [*samples, *[padding] * (rows * updates - len(samples))]
        lengths = [len(s["input_ids"]) for s in samples]
        if self.as_trees:
            layout = build_layout(mini_batch, batch.row_sizes(lengths), 1, rows, balance_groups)
        else:
            layout = build_layout(mini_batch, lengths, 1, rows, balance_by_length)
        batch.arrange(layout)
        samples = [samples[i] for i in layout.order]
        data = _jagged(samples, (*MODEL_COLUMNS, *old))
        rollout = jagged([sample["rollout_log_probs"] for sample in samples])
        batch.columns = Columns(data["response_mask"], data.get("old_log_probs", rollout), rollout)
        return data

    def _update(self, data: TensorDict, mini_batch_size: int) -> dict[str, float]:
        """The optimizer updates (`DittoTrainer._update_actor`)."""
        tu.assign_non_tensor(
            data,
            **{USE_PREFIX_TREE: self.as_trees},
            calculate_entropy=self.actor.calculate_entropy or self.actor.entropy_coeff != 0.0 or PLACES in data,
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=mini_batch_size,
            mini_batch_size=mini_batch_size,
            epochs=self.actor.ppo_epochs,
            seed=self.actor.data_loader_seed,
            dataloader_kwargs={"shuffle": False},
            temperature=1.0,
            distillation=self.settings.distillation,
        )
        metrics = tu.get(self.worker.update_actor(data), "metrics")
        numbers: dict[str, float] = reduce_metrics(rename_dict(metrics, "actor/"))
        return numbers | {"actor/updates": len(data) // mini_batch_size * self.actor.ppo_epochs}


def _of_the_actor(batch: StepBatch, entropy: Tensor) -> dict[str, float]:
    """What the actor's log-probs and entropies (jagged, of all tokens) tell before the first update."""
    assert batch.columns is not None
    columns, mask, numbers = batch.columns, batch.columns.mask, metrics.context_gap(batch)
    sampled = response_tokens(entropy, mask).values()[mask.values().bool()]
    if len(sampled):
        numbers["actor/entropy"] = sampled.mean().item()
    same_context = batch.is_kind("draft", "refined_feedback")
    difference, distances = sync_alarm.distance(columns.old_log_probs, columns.rollout_log_probs, mask, same_context)
    if difference is not None:
        numbers |= distances | {"training/rollout_logprob_diff_mean": difference}
    return numbers


def _jagged(samples: Sequence[dict[str, Tensor]], names: Sequence[str]) -> TensorDict:
    return tu.get_tensordict({name: jagged([sample[name] for sample in samples]) for name in names})


def _sample(output: AgentLoopOutput) -> dict[str, Tensor]:
    """A sequence as the columns of verl's queue (`AgentLoopWorkerTQ._agent_loop_postprocess`)."""
    prompt, response, mask = (
        torch.tensor(ids, dtype=torch.int64) for ids in (output.prompt_ids, output.response_ids, output.response_mask)
    )
    ids = torch.cat([prompt, response])
    return {
        "prompts": prompt,
        "responses": response,
        "response_mask": mask,
        "loss_mask": mask,
        "rollout_log_probs": torch.tensor(output.response_logprobs, dtype=torch.float32),
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
    }
