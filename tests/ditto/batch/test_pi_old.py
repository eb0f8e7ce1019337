"""Where pi_old comes from, and that an update without a pass is the update with one, with the same metrics."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

import ditto.batch.queue
import ditto.old_log_probs
from ditto.batch.jagged import jagged
from ditto.batch.minibatch_layout import Layout
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import StepBatch
from ditto.batch.step_parts import StepParts
from ditto.launching.compose import default_config
from ditto.objectives import objective
from ditto.objectives.losses import PLACES
from ditto.old_log_probs import PiOld
from ditto.settings import RunSettings, Settings
from ditto.trainer_modes import DittoTrainerSync
from ditto.verl_hooks.actor_worker import UpdateOutputs, places
from ditto.verl_hooks.dropout import active_dropout
from tests.ditto.our_step import ours, settings_of, step_data
from tests.ditto.tiny_step import SEQUENCES, old_log_probs, sequences, tiny_model

ACTOR = "actor_rollout_ref.actor"
ONE_UPDATE = {"data.train_batch_size": 16, f"{ACTOR}.ppo_mini_batch_size": 16}


def chosen(name: str = "ditto", dropout: tuple[str, ...] = (), **overrides: Any) -> PiOld:
    config = default_config("cpu").copy()
    OmegaConf.set_readonly(config, False)
    for key, value in (ONE_UPDATE | overrides).items():
        OmegaConf.update(config, key, value, force_add=True)
    options = settings_of(name).options.model_copy(update={"old_logp": config.algorithm.old_logp})
    settings = Settings(objective=objective(name), options=options, run=RunSettings(dir="unused"))
    return PiOld.chosen(config, settings, dropout)


def test_auto_leaves_the_pass_out_only_for_one_update_that_is_its_own_pi_old() -> None:
    assert chosen().source == "update"
    needs: list[tuple[dict[str, Any], str]] = [
        ({"data.train_batch_size": 32}, "several mini-batches"),
        ({f"{ACTOR}.ppo_epochs": 2}, "several epochs"),
        ({"algorithm.rollout_correction.rollout_is": "token"}, "rollout_correction"),
        ({"actor_rollout_ref.model.use_fused_kernels": False}, "chunked head"),
        ({"algorithm.old_logp": "recompute"}, "old_logp=recompute"),
    ]
    for overrides, reason in needs:
        choice = chosen(**overrides)
        assert choice.source == "pass" and reason in choice.why
    choice = chosen(dropout=("attention_dropout",))
    assert choice.source == "pass" and "attention_dropout" in choice.why


def test_rollout_takes_what_was_sampled_in_the_context_that_is_trained() -> None:
    sampled = {"algorithm.old_logp": "rollout"}
    assert chosen(**sampled).sampled == {"draft", "refined_feedback"}
    assert "refined_base" not in chosen("rltf_sd", **sampled).sampled, "it divides by pi_old, without clipping"
    assert "refined_base" in chosen("erl", **sampled).sampled, "its refined answers have no ratio"


def test_dropout_is_seen_in_modules_and_in_configs() -> None:
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = Qwen3ForCausalLM(Qwen3Config(**small, **heads))
    assert active_dropout(model) == []
    model.lora_dropout = nn.ModuleDict({"default": nn.Dropout(0.1), "other": nn.Dropout(0.0)})
    assert active_dropout(model) == ["lora_dropout.default"]
    assert active_dropout(Qwen3ForCausalLM(Qwen3Config(**small, **heads, attention_dropout=0.1))) == [
        "attention_dropout"
    ]


@pytest.mark.parametrize("name", ["ditto", "sdpo_token_grpo"])
@pytest.mark.parametrize("terms", [{}, {"entropy_coeff": 0.2}, {"policy_loss": {"loss_mode": "gspo"}}])
def test_without_a_pass_loss_and_gradients_are_those_with_one(
    name: str, terms: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sequences(name) if name == "ditto" else [s for s in SEQUENCES if s.kind in ("draft", "none")]
    old = old_log_probs(tiny_model(), rows, None)
    settings, results = settings_of(name), []
    for observed in (False, True):
        step, data = step_data(
            rows,
            old,
            settings,
            "token-mean",
            1,
            monkeypatch,
            prompts_per_mini_batch=5,
            teacher_prompts=[(7, 5)] * len(rows),
        )
        if observed:
            del data["old_log_probs"]
        results.append(ours(tiny_model(), step, data, "token-mean", settings, ranks=1, splits=2, update=0, **terms))
    (loss, gradients), (other_loss, other_gradients) = results
    assert other_loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
    assert sum(float(gradient.norm()) for gradient in gradients.values()) > 0
    for key, gradient in gradients.items():
        assert torch.allclose(other_gradients[key], gradient, rtol=1e-6, atol=1e-9), key


def test_the_update_tells_the_log_probs_of_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over micro-batches that mix the rows, and two epochs of which the first counts."""
    rows, settings = sequences("ditto"), settings_of("ditto")
    old = old_log_probs(tiny_model(), rows, None)
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, prompts_per_mini_batch=5)
    data[PLACES] = places(len(data))
    kept = UpdateOutputs(lambda **_: (torch.zeros(()), {}))
    lengths = data["input_ids"].offsets().diff().tolist()
    for epoch in (0.0, 1.0):
        for members in (list(range(1, len(data), 2)), list(range(0, len(data), 2))):
            values = [torch.arange(lengths[i], dtype=torch.float64) + 100 * i + 0.5 * epoch for i in members]
            micro_batch = TensorDict({PLACES: jagged([torch.tensor([i]) for i in members])}, batch_size=len(members))
            kept(model_output={"log_probs": jagged(values), "entropy": None}, data=micro_batch)
    taken = kept.take(data[PLACES])
    assert set(taken.keys()) == {"log_probs"}
    for i, row in enumerate(taken["log_probs"].unbind()):
        assert torch.equal(row, torch.arange(lengths[i], dtype=torch.float64) + 100 * i)
    with pytest.raises(KeyError):  # nothing of one step reaches the next
        kept.take(data[PLACES])


# ---- the trainer ------------------------------------------------------------------------------------------------

KINDS = ["draft", "refined_base", "refined_feedback", "draft", "refined_base", "draft"]
LENGTHS = [2, 3, 1, 2, 2, 1]


class Workers:
    """Two ranks whose log-probs of a row are 10 + its number in the pass and 20 + its number in the update."""

    def __init__(self, queue: dict[str, dict[str, Any]]) -> None:
        self.queue, self.passed, self.observed = queue, list[str](), list[str]()
        self._dispatch_info = {"actor": [0, 1]}

    def _put(self, keys: list[str], first: float) -> None:
        for key in keys:
            value = torch.full((LENGTHS[int(key)] + 3,), first + int(key))
            self.queue[key] |= {"log_probs": value, "entropy": value / 100}

    def compute_log_prob(self, batch: Any) -> None:
        assert not len(batch.keys) % 2, "ranks of the same size"
        self.passed += batch.keys
        self._put(batch.keys, 10.0)

    def update_outputs(self, batch: Any) -> None:
        self.observed += batch.keys
        self._put(batch.keys, 20.0)


class Batch(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.keys)

    def select_keys(self, keys: list[str]) -> Batch:
        return Batch(keys=keys, partition_id="train", fields=None, extra_info={})


def trained(
    pi_old: PiOld,
    monkeypatch: pytest.MonkeyPatch,
    *,
    parts: int = 1,
    kinds: Sequence[str] = KINDS,
    valid: bool = True,
) -> tuple[StepBatch, Workers]:
    """A step of two mini-batches (rows 0 to 2, and 3 to 5) whose pi_old and metrics the trainer computes."""
    queue = {
        str(row): {"response_mask": torch.ones(n, dtype=torch.int64), "rollout_log_probs": torch.full((n,), -float(n))}
        for row, n in enumerate(LENGTHS)
    }

    def get(keys: list[str], select_fields: list[str], **_: Any) -> dict[str, Any]:
        return {name: jagged([queue[key][name] for key in keys]) for name in select_fields}

    def put(keys: list[str], fields: Any, **_: Any) -> None:
        for name, column in fields.items():
            for key, value in zip(keys, column.unbind(), strict=True):
                queue[key][name] = value

    fake = SimpleNamespace(kv_batch_get=get, kv_batch_put=put)
    monkeypatch.setattr(ditto.batch.queue, "tq", fake)
    trainer = object.__new__(DittoTrainerSync)
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"temperature": 1.0}}})
    trainer.pi_old = pi_old
    workers = trainer.actor_rollout_wg = Workers(queue)
    records = [SequenceRecord(kind, "p", "s", valid, tokens=n) for kind, n in zip(kinds, LENGTHS, strict=True)]
    step = StepBatch(records, [])
    step.layout = Layout(list(range(6)), [0, 0, 0, 1, 1, 1], 3, 2)
    trainer.parts = StepParts([step] * parts)
    batch = Batch(keys=list(queue), partition_id="train", fields=None, extra_info={})
    trainer._compute_old_log_prob(batch, {})
    ditto.old_log_probs.measure_by_update(workers, pi_old, trainer.parts, batch)
    step.pi_old = [row.get("old_log_probs") for row in queue.values()]  # type: ignore[attr-defined]
    return step, workers


def actors(step: StepBatch) -> list[float]:
    assert step.columns is not None
    return [row[0].item() for row in step.columns.old_log_probs.unbind()]


def test_a_pass_covers_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    step, workers = trained(PiOld("pass", "", frozenset(), True), monkeypatch)
    assert workers.passed == list("012345") and not workers.observed
    assert actors(step) == [10, 11, 12, 13, 14, 15] and step.measured is None
    assert step.entropy is not None and len(step.entropy) == sum(LENGTHS)


def test_rollout_computes_refined_base_alone_and_the_first_update_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    pi_old = PiOld("rollout", "", frozenset({"draft", "refined_feedback"}), True)
    step, workers = trained(pi_old, monkeypatch)
    assert workers.passed == ["1", "4"] and workers.observed == list("012345")
    # Of the first mini-batch the update tells the actor's log-probs; of the second, it would be too late.
    assert actors(step) == [20, 21, 22, -2, 14, -1]
    assert step.measured == [True, True, True, False, True, False]
    assert [row[0].item() for row in step.pi_old] == [-2, 11, -1, -2, 14, -1]  # type: ignore[attr-defined]
    assert step.entropy is not None and len(step.entropy) == sum(LENGTHS[:3])

    later, workers = trained(pi_old, monkeypatch, parts=2)
    assert workers.passed == ["1", "4"] and not workers.observed
    assert later.measured == [False, True, False, False, True, False] and later.entropy is None


def test_a_pass_of_few_rows_is_filled_up_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    pi_old = PiOld("rollout", "", frozenset({"draft"}), True)
    step, workers = trained(pi_old, monkeypatch, parts=2, kinds=["draft", "refined_base", *["draft"] * 4])
    assert workers.passed == ["1", "0"] and actors(step)[1] == 11


def test_without_a_valid_row_there_is_no_update_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    step, workers = trained(PiOld("update", "", frozenset(), True), monkeypatch, valid=False)
    assert workers.passed == list("012345") and not workers.observed and step.measured is None
