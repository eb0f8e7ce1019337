"""Two policies in one step are two separate runs with the other side frozen: groups, masks, losses, adapters, syncs.

In float64, to 1e-6 at most (most is equal bit by bit): one model with two adapters and one AdamW, against two models
with an adapter and an AdamW each.
"""

import asyncio
import copy
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from verl.trainer.ppo.v1 import PPOTrainer

import ditto.policy_steps
from benchmarks.step import training_worker
from ditto.batch.minibatch_layout import assign_mini_batches
from ditto.batch.queue import KVBatchMeta
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import StepBatch
from ditto.batch.step_parts import StepParts
from ditto.launching.compose import load_config
from ditto.model.engine import DittoEngine
from ditto.objectives.losses import objective_loss
from ditto.policies import ADAPTERS
from ditto.policy_steps import PolicySteps
from ditto.preflight import _check_seats, check_settings
from ditto.rollout.sync_alarm import SyncAlarm, WeightsOutOfSync
from ditto.run.alarms import of_policy, raise_alarms
from ditto.run.diagnostics import assistant_turns
from ditto.settings import BadConfig, Settings
from soul.record import AttemptRecord, SessionRecord
from soul.tasks.sotopia import Sotopia
from tests.ditto import tiny_step, worker_runs
from tests.ditto.our_step import actor_config, engine_of, ours, step_data
from tests.ditto.tiny_step import Sequence_, sequences, tiny_model

MODE = "token-mean"
USER, ASSISTANT = "policies.user={seats: [policy], objective: ditto}", "policies.assistant={seats: [partner]}"
DATA = ["platform=cpu", "data.train_files=[a.parquet]", "data.val_files=[b.parquet]"]


def config_of(*words: str) -> Any:
    return load_config([*DATA, *words])


def settings_of(*words: str) -> Settings:
    return Settings.from_config(config_of(*words))


BOTH = settings_of(USER, ASSISTANT, "algorithm.objective=grpo")


# ---- settings -------------------------------------------------------------------------------------------------------


def test_a_policy_has_its_seats_its_objective_and_its_adapter() -> None:
    user, assistant = BOTH.policies
    assert [each.name for each in BOTH.objectives] == ["ditto", "grpo"]
    assert (user.adapter, assistant.adapter) == ("default", "policy_assistant")
    assert [each.sampling["extra_args"] for each in BOTH.policies] == [{"ditto_adapter": 123}, {"ditto_adapter": 124}]
    assert BOTH.policy_of("partner") == assistant and BOTH.policy_of("policy") == BOTH.policy_of("Emma") == user
    assert OmegaConf.select(config_of(USER, ASSISTANT), ADAPTERS) == ["user", "assistant"]
    frozen = settings_of(USER, "policies.base={seats: [partner], objective: none}")
    assert frozen.policies[1].number == 0 and [each.name for each in frozen.in_turn(1)] == ["user"]
    assert settings_of().policies == () and settings_of().policy_of("policy") is None


def test_policies_train_together_or_in_turn() -> None:
    assert [each.name for each in BOTH.in_turn(5)] == ["user", "assistant"]
    turns = settings_of(USER, ASSISTANT, "self_play.turn_steps=2")
    assert [turns.in_turn(step)[0].name for step in range(1, 6)] == ["user", "user", "assistant", "assistant", "user"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["policies.user={seats: [partner]}"], "no policy has 'policy'"),
        ([USER, "policies.other={seats: [policy]}"], "two policies have 'policy'"),
        (["policies.user={seats: [policy], objective: none}"], "nothing would be trained"),
        (["policies.User={seats: [policy]}"], "small letters and digits"),
        (["policies.user={seats: [policy], objective: ditt}"], "ditto"),
        (["policies.user={seats: []}"], "seats"),
    ],
)
def test_policies_that_cannot_be_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        settings_of(*words)


@pytest.mark.parametrize(
    "words, said",
    [
        (["trainer.v1.trainer_mode=ditto_colocate_async"], "ditto_sync alone"),
        (["actor_rollout_ref.model.lora_rank=0"], "each of several policies is a LoRA adapter"),
        (["policies.user.objective=sdpo_token"], "use live"),
    ],
)
def test_runs_that_cannot_train_several_policies_are_refused(words: list[str], said: str, tmp_path: Any) -> None:
    lora = "actor_rollout_ref.model.lora_rank=8"
    with pytest.raises(BadConfig, match=said):
        check_settings(config_of(USER, ASSISTANT, lora, f"run.dir={tmp_path}", *words))


def test_a_seat_that_no_row_has_is_refused() -> None:
    _check_seats(BOTH, {Sotopia(seats="both")})
    with pytest.raises(BadConfig, match="policies.assistant.seats: no training row has the seat partner"):
        _check_seats(BOTH, {Sotopia()})


# ---- a step's rows --------------------------------------------------------------------------------------------------


def rows_of(policy: str) -> list[Sequence_]:
    """The step's rows of a policy: the assistant has other rewards, and no refined episodes."""
    rows = sequences("ditto" if policy == "user" else "grpo")
    return rows if policy == "user" else [replace(row, reward=1.0 - row.reward**2) for row in rows]


def records_of(policy: str) -> list[SequenceRecord]:
    rows, suffix = rows_of(policy), "" if policy == "user" else ":partner"
    drafts = {row.session: row.reward for row in rows if row.kind == "draft"}
    refined = {row.session: row.reward for row in rows if row.kind == "refined_base"}
    return [
        SequenceRecord(
            row.kind,
            row.prompt + suffix,
            row.session + suffix,
            row.valid,
            tokens=sum(row.mask),
            draft_reward=drafts.get(row.session),
            refined_reward=refined.get(row.session),
            policy=policy,
        )
        for row in rows
    ]


def planned(step: StepBatch, settings: Settings) -> list[Any]:
    mini_batch = assign_mini_batches([record.asked for record in step.records], 3)
    step.plan(mini_batch, settings, MODE, 1.0)
    return [(record.session, record.kind, mini_batch[i], record.loss) for i, record in enumerate(step.records)]


class Verls(PPOTrainer):
    """verl's part of the trainer: it samples, and balances what it gets."""

    def _step_once(self, metrics: Any, timing_raw: Any, sample_batch_size: int) -> KVBatchMeta:
        batch, _ = self.sample(partition_id="train")
        self.on_sample_end()
        step = StepBatch.fetch(batch)
        batch, _ = step.of_policy(batch, self.policy.name)
        self.parts.batches.append(step)
        self.plans[self.policy.name] = planned(step, self.settings)
        return batch

    def on_sample_end(self) -> None:
        self.slept += 1


class Steps(PolicySteps, Verls):
    """Our part of the trainer on it, without workers."""

    def _choose(self, policy: Any) -> None:
        self.chosen.append(policy.name)
        self.policy, self.settings = policy, self._whole.of_policy(policy)


Steps.__abstractmethods__ = frozenset()


def test_the_rows_of_a_joint_step_are_those_of_two_separate_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [*records_of("user"), *records_of("assistant")]
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(1)).tolist()
    mixed = {f"key{i}": everything[i] for i in order}
    steps: Any = object.__new__(Steps)
    steps.__dict__ |= {
        "parts": StepParts(),
        "plans": {},
        "slept": 0,
        "chosen": [],
        "global_steps": 1,
        "_asked_prompts": 5,
    }
    steps.settings = steps._whole = BOTH
    steps.policies, steps._shares = BOTH.policies, []
    sessions = {record.session.partition(":")[0] for record in everything}
    steps.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"n": len(sessions) / 5}}})
    whole = KVBatchMeta(keys=list(mixed), tags=[{} for _ in mixed], partition_id="train")
    steps._sample_all, steps.sample = lambda **_: (whole, {}), steps._sample_share

    def fetch(batch: KVBatchMeta) -> StepBatch:
        return StepBatch([copy.copy(mixed[key]) for key in batch.keys], [])

    monkeypatch.setattr(ditto.policy_steps.StepBatch, "fetch", staticmethod(fetch))
    batch = steps._step_once({}, {}, 5)
    assert steps.chosen == ["user", "assistant"] and steps.slept == 1 and len(batch.keys) == len(everything)
    for policy, settings in zip(BOTH.policies, map(BOTH.of_policy, BOTH.policies), strict=True):
        own = [record for record in mixed.values() if record.policy == policy.name]
        assert steps.plans[policy.name] == planned(StepBatch(copy.deepcopy(own), []), settings)


# ---- updates --------------------------------------------------------------------------------------------------------

LR = 0.05


def adapted(*names: str) -> PeftModel:
    """The tiny model in float64 with these adapters, each with factors of its own."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
    model: PeftModel = get_peft_model(tiny_model(head=True), config, adapter_name="default").double()
    for name in names[1:]:
        model.add_adapter(name, config)
    model.double().eval()
    return model


def set_factors(model: PeftModel, adapter: str, policy: str) -> None:
    chance = torch.Generator().manual_seed(len(policy))
    for name, parameter in model.named_parameters():
        if f".{adapter}." in name:
            parameter.data = torch.randn(parameter.shape, generator=chance, dtype=torch.float64) * 0.3


def factors(model: PeftModel, adapter: str) -> dict[str, Tensor]:
    return {
        name.replace(f".{adapter}.", "."): parameter.detach().clone()
        for name, parameter in model.named_parameters()
        if f".{adapter}." in name
    }


def engine_on(model: PeftModel) -> DittoEngine:
    engine = engine_of(model)
    engine.optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.1)
    return engine


def train(engine: DittoEngine, policy: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The updates of a policy in one step, with the losses of their mini-batches."""
    settings = BOTH.of_policy(next(each for each in BOTH.policies if each.name == policy))
    rows, losses = rows_of(policy), []
    old = tiny_step.old_log_probs(engine.module, rows, tiny_step.perturbed)
    step, data = step_data(rows, old, settings, MODE, 1, monkeypatch)
    assert step.layout is not None
    for update in range(step.layout.updates):
        loss, _ = ours(*(engine.module, step, data, MODE, settings), ranks=1, splits=1, update=update, engine=engine)
        losses.append(loss)
        engine.optimizer.step()
        engine.optimizer.zero_grad()
    return losses


@pytest.mark.parametrize("schedule", ["joint", "alternating"])
def test_adapters_and_losses_are_those_of_two_separate_runs(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"user": "default", "assistant": "policy_assistant"}
    together = engine_on(adapted(*names.values()))
    alone = {policy: engine_on(adapted("default")) for policy in names}
    for policy, adapter in names.items():
        set_factors(together.module, adapter, policy)
        set_factors(alone[policy].module, "default", policy)
    turns = [["user", "assistant"]] * 2 if schedule == "joint" else [["user"], ["user"], ["assistant"]]
    for turn in turns:
        for policy in turn:
            other = next(name for name in names if name != policy)
            before = factors(together.module, names[other])
            together.choose_adapter(names[policy])
            losses = [train(engine, policy, monkeypatch) for engine in (together, alone[policy])]
            assert losses[0] == pytest.approx(losses[1], rel=1e-12) and any(losses[0])
            assert all(
                torch.equal(value, before[name]) for name, value in factors(together.module, names[other]).items()
            )
    for policy, adapter in names.items():
        mine, theirs = factors(together.module, adapter), factors(alone[policy].module, "default")
        assert mine.keys() == theirs.keys() and len(mine) == 12
        for name, value in mine.items():
            torch.testing.assert_close(value, theirs[name], rtol=1e-12, atol=1e-12)
    moved = adapted("default")
    set_factors(moved, "default", "user")
    assert any(
        (factors(together.module, "default")[k] - v).abs().max() > 1e-3 for k, v in factors(moved, "default").items()
    )


def test_the_learning_rate_moves_once_in_a_step_of_two_policies() -> None:
    engine = engine_on(adapted("default", "policy_assistant"))
    engine.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(engine.optimizer, lambda step: 1 / (1 + step))
    engine.optimizer.step()
    rates = []
    for adapter, last in [("default", False), ("policy_assistant", True)] * 2:
        engine.choose_adapter(adapter, last)
        rates.append(engine.lr_scheduler_step())
    assert rates == pytest.approx([LR, LR / 2, LR / 2, LR / 3])


# ---- serving and syncs ----------------------------------------------------------------------------------------------


def test_a_request_is_sampled_with_the_adapter_of_its_policy() -> None:
    from vllm import SamplingParams

    from ditto.verl_hooks.policy_server import with_adapter

    def generate(**request: Any) -> Any:
        return request["lora_request"], request["sampling_params"].extra_args

    def sampled(**chosen: Any) -> Any:
        request = {"prompt": None, "request_id": "1", "lora_request": "verl's"}
        return with_adapter(generate, sampling_params=SamplingParams(max_tokens=1, **chosen), **request)

    lora, more = sampled(**BOTH.policies[1].sampling)
    assert (lora.lora_int_id, lora.lora_name, more) == (124, "124", {})
    assert sampled(extra_args={"ditto_adapter": 0}) == (None, {}) and sampled() == ("verl's", None)


def test_each_adapter_is_synced_under_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from ditto.verl_hooks.actor_worker import ActorWorker

    sent: list[Any] = []

    async def verls(self: Any, **_: Any) -> None:
        sent.append("default")

    async def update_weights(weights: Any, **how: Any) -> None:
        sent.append((dict(weights), how["peft_config"]["ditto_adapter"], how["base_sync_done"]))

    engine = engine_on(adapted("default", "policy_assistant"))
    worker = object.__new__(ActorWorker)
    worker.config = OmegaConf.create({"model": {"lora": {"policies": ["user", "assistant"]}}})
    worker.actor, worker.rollout = SimpleNamespace(engine=engine), SimpleNamespace(update_weights=update_weights)
    monkeypatch.setattr(ActorRolloutRefWorker, "update_weights", verls)
    asyncio.run(worker.update_weights(global_steps=3))
    verls_own, (weights, number, adapter_alone) = sent
    assert (verls_own, number, adapter_alone) == ("default", 124, True)
    expected = {name: value for name, value in factors(engine.module, "policy_assistant").items()}
    assert weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in weights)


def test_a_worker_of_the_engine_replaces_the_adapter_of_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import verl.workers.rollout.vllm_rollout.utils as of_verl

    from ditto.verl_hooks.policy_extension import PolicyExtension

    class Worker(PolicyExtension):
        loaded: dict[int, Any] = {}

        def remove_lora(self, number: int) -> None:
            self.loaded.pop(number, None)

        def add_lora(self, request: Any) -> None:
            self.loaded[request.lora_int_id] = request.lora_name, request.lora_tensors["a"], request.peft_config

    class Receiver:
        value = 0

        def __init__(self, **_: Any) -> None: ...

        def receive_weights(self, on_bucket_received: Any) -> None:
            on_bucket_received([("a", torch.ones(1) * self.value)], is_last=True)

    import verl.workers.rollout.vllm_rollout.bucketed_weight_transfer as transfer

    monkeypatch.setattr(transfer, "BucketedWeightReceiver", Receiver)
    worker: Any = object.__new__(Worker)
    worker.device, worker._is_qat_model, worker._is_modelopt_qat = torch.device("cpu"), False, False
    worker._get_zmq_handle = lambda: ""
    for value, config in enumerate([{"r": 4}, {"r": 4, "ditto_adapter": 124}, {"r": 4, "ditto_adapter": 124}]):
        Receiver.value = value
        worker.update_weights_from_ipc(config, base_sync_done=True)
    assert {number: (name, value.item(), how) for number, (name, value, how) in worker.loaded.items()} == {
        123: ("123", 0.0, {"r": 4}),
        124: ("124", 2.0, {"r": 4}),
    }
    assert of_verl.VLLM_LORA_INT_ID == 123


def test_a_lost_sync_of_one_adapter_is_found_and_named() -> None:
    alarm = SyncAlarm(0.1, max_unchanged=2)

    def after(step: int, user: float, assistant: float) -> None:
        for policy, log_prob in {"user": user, "assistant": assistant}.items():
            answers = {f"rollout server 0 with the adapter of {policy}": frozenset({((1,), (log_prob,))})}
            alarm.check_change(step, answers, updated=step > 0)

    after(0, -1.0, -1.0)
    after(1, -1.1, -1.0)
    with pytest.raises(WeightsOutOfSync, match="Step 2: rollout server 0 with the adapter of assistant answers"):
        after(2, -1.2, -1.0)


def test_a_distance_of_one_policys_rows_names_the_policy() -> None:
    mask = torch.nested.as_nested_tensor([torch.ones(3, dtype=torch.int64)], layout=torch.jagged)
    values = torch.nested.as_nested_tensor([torch.full((3,), -1.0)], layout=torch.jagged)
    from ditto.batch.step_batch import Columns

    step = StepBatch([SequenceRecord("draft", "a", "a_0", True)], [], columns=Columns(mask, values, values - 0.5))
    with pytest.raises(WeightsOutOfSync, match="Step 4, policy user: the log-probs"):
        SyncAlarm(0.1).check_rollout(4, step, [3], "user")


# ---- what goes wrong in self-play -----------------------------------------------------------------------------------


def alarms_of(history: dict[str, list[float]]) -> dict[str, float]:
    """The alarms of the last step of these numbers."""
    steps = {i + 1: {key: values[i] for key, values in history.items()} for i in range(20)}
    return raise_alarms(20, "grpo", steps[20], steps)


def rising(by: float, start: float = 0.2) -> list[float]:
    return [start + by * step + 0.001 * (step % 2) for step in range(20)]


REWARD, CANARY = "ditto/reward_draft", "ditto/canary/reward_draft"
SHARE = "share_assistant_turns"


def test_two_policies_that_please_the_judge_together_raise_the_alarm() -> None:
    rewards = {f"policy/{policy}/{REWARD}": rising(0.02) for policy in ("user", "assistant")}
    assert alarms_of({**rewards, CANARY: rising(-0.02)})["alarm/collusion"] == 1
    assert alarms_of({**rewards, CANARY: rising(0.02)})["alarm/collusion"] == 0
    one = {**rewards, f"policy/user/{REWARD}": rising(-0.02)}
    assert alarms_of({**one, CANARY: rising(-0.02)})["alarm/collusion"] == 0, "one of them loses: no collusion"
    assert "alarm/collusion" not in alarms_of({REWARD: rising(0.02), CANARY: rising(-0.02)}), "there is one policy"


@pytest.mark.parametrize("key, alarm", [("ditto/kl_start", "private_code"), (SHARE, "role_drift")])
def test_a_policy_that_leaves_its_language_or_its_role_raises_the_alarm(
    key: str, alarm: str, caplog: pytest.LogCaptureFixture
) -> None:
    others = {f"policy/assistant/{key}": [0.3] * 20}  # high from the start: it is what the base model does
    assert alarms_of({**others, f"policy/user/{key}": rising(0.001)})[f"alarm/{alarm}"] == 0
    assert alarms_of({**others, f"policy/user/{key}": [0.0] * 18 + [0.4, 0.9]})[f"alarm/{alarm}"] == 1
    assert f"alarm {alarm} (user)" in caplog.text


def test_turns_of_an_assistant_are_counted() -> None:
    said = ["How can I help you today?", "I want 480 for it.", "Certainly! Here is a list.", "My ai is called Ada."]
    seat: Any = [{"role": "user", "content": "How can I help?"}, *({"role": "assistant", "content": s} for s in said)]
    trace = SessionRecord(task="sotopia", number=0, row=0, draft=AttemptRecord(seats={"policy": seat}))
    assert assistant_turns([trace]) == {SHARE: 0.5} and assistant_turns([]) == {}


def test_a_policys_own_alarms_are_those_of_its_own_numbers() -> None:
    numbers = {f"policy/user/{REWARD}": 0.5, REWARD: 0.1, "policy/userb/x": 1.0}
    assert of_policy("user", numbers) == {REWARD: 0.5}


# ---- FSDP2, and a resume --------------------------------------------------------------------------------------------


def worker_of(folder: Path) -> Any:
    lora = {"lora_rank": 4, "lora": {"policies": ["user", "assistant"]}}
    sizes = {"use_dynamic_bsz": True, "max_token_len_per_gpu": 1 << 20}
    return training_worker(folder / "model", lora, sizes, {"lr": LR, "total_training_steps": 10})


def step_of(worker: Any, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of one policy on a rank of its own, as the trainer asks for it."""
    chosen = next(each for each in BOTH.policies if each.name == policy)
    settings, rows = BOTH.of_policy(chosen), rows_of(policy)
    old = tiny_step.old_log_probs(tiny_model(), rows, tiny_step.perturbed)
    step, data = step_data(rows, old, settings, MODE, 1, monkeypatch)
    assert step.layout is not None
    columns = {key: list(value.unbind()) for key, value in data.items()}
    columns["old_log_probs"] = [row.float() for row in columns["old_log_probs"]]
    loss = partial(objective_loss, config=actor_config(MODE), objective=settings.objective, options=settings.options)
    worker.engine.choose_adapter(chosen.adapter)
    worker.set_loss_fn(loss)
    norms = worker_runs.train(worker, columns, {"distillation": None, "tree": False, "rows": step.layout.rows})
    assert all(norm > 0 for norm in norms)


def test_a_resumed_run_goes_on_with_both_adapters_and_their_optimizers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    for name, value in rendezvous.items():
        monkeypatch.setenv(name, value)
    tiny_model().float().save_pretrained(tmp_path / "model")
    names, saved = [policy.adapter for policy in BOTH.policies], str(tmp_path / "checkpoint")
    worker = worker_of(tmp_path)
    try:
        start = copy.deepcopy(worker.engine.adapter_weights(names[1])[0])  # on one rank it is the live memory
        step_of(worker, "user", monkeypatch)
        frozen = worker.engine.adapter_weights(names[1])[0]
        assert all(torch.equal(frozen[name], value) for name, value in start.items())
        step_of(worker, "assistant", monkeypatch)
        worker.save_checkpoint(saved, global_step=1)
        resumed = worker_of(tmp_path)
        resumed.load_checkpoint(saved, del_local_after_load=False)
        for each in (worker, resumed):
            for policy in ("assistant", "user"):
                step_of(each, policy, monkeypatch)
        for adapter in names:
            ends = [each.engine.adapter_weights(adapter)[0] for each in (worker, resumed)]
            assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
            assert not any(torch.equal(value, start[name]) for name, value in ends[0].items())
    finally:
        torch.distributed.destroy_process_group()
