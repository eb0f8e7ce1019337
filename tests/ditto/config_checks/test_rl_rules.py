"""Rules of RL: each wrong value is refused with its key and the remedy, and what is read is accepted."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.key_types import check_types
from ditto.config_checks.keys import RL_KEYS
from ditto.config_checks.rl_rules import RLRun, rl_rules
from ditto.config_checks.rules import check_rules
from ditto.launching.compose import load_config
from ditto.settings import Settings
from soul.errors import SeveralMistakes, SoulError

ROOT = Path(__file__).resolve().parents[3]
ACTOR, ROLLOUT, MODEL = (f"actor_rollout_ref.{section}" for section in ("actor", "rollout", "model"))


@cache
def recipe() -> DictConfig:
    """Shared by the tests: leave it as it is."""
    files = ["data.train_files=[a.parquet]", "data.val_files=[b.parquet]"]
    return load_config(["--config-dir", str(ROOT / "recipe/ditto/config"), "--config-name", "ditto", *files])


COLOCATE = {"trainer.v1.trainer_mode": "ditto_colocate_async"}
SEPARATE = {"trainer.v1.trainer_mode": "ditto_separate_async", f"{ROLLOUT}.nnodes": 1}
TRUNCATED = {f"{ROLLOUT}.top_p": 0.9, "run.max_logprob_diff": 0.3}
AS_SAMPLED = (("old_logp", "rollout"), ("rollout_correction.rollout_is", "token"))

# key -> a wrong value, what else must be set for it to be wrong, what the paragraph must say; one line for each rule
WRONG: list[tuple[str, Any, dict[str, Any], str]] = [
    ("trainer.v1.separate_async.num_warmup_batches", 3, {}, "only if trainer.v1.trainer_mode is ditto_separate_async."),
    ("trainer.v1.sampler.max_off_policy_threshold", 3, {}, "ditto_colocate_async or ditto_separate_async"),
    ("trainer.v1.colocate_async.num_warmup_batches", 8, COLOCATE, "too old"),
    ("trainer.v1.separate_async.num_warmup_batches", 8, SEPARATE, "too old"),
    ("trainer.v1.separate_async.parameter_sync_step", 3, SEPARATE, "ppo_mini_batch_size=16 must be data.train_batch"),
    (f"{ROLLOUT}.nnodes", 0, SEPARATE, "at least 1"),
    ("trainer.resume_from_path", "outputs/run/global_step_2", {}, "trainer.resume_mode=resume_path"),
    ("data.train_batch_size", 60, {}, "must be a multiple of actor_rollout_ref.actor.ppo_mini_batch_size=16"),
    ("data.train_batch_size", 64, {"trainer.nnodes": 3}, "cannot be divided evenly among the 24 devices"),
    (
        f"{ROLLOUT}.n",
        1,
        {"algorithm.objective": "sdpo_token_grpo", "algorithm.sdpo.weight": 0.0},
        "every advantage is 0",
    ),
    (f"{ROLLOUT}.max_model_len", 100, {}, "prompt + feedback + response = 17408"),
    (f"{ACTOR}.ppo_max_token_len_per_gpu", None, {}, "only platform=cpu chooses"),
    (f"{ACTOR}.ppo_max_token_len_per_gpu", 17407, {}, "the longest sequence"),
    (f"{ROLLOUT}.log_prob_max_token_len_per_gpu", 17407, {}, "the longest sequence"),
    ("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", 9, {f"{ACTOR}.use_kl_loss": True}, "17408 tokens"),
    *(
        (f"algorithm.{option}", value, {"algorithm.objective": objective}, f"{objective} does not read this option")
        for option, value, objective in (
            ("distill.teachers", {"hitom": "outputs/run"}, "sdpo_token"),
            ("norm_adv_by_std_in_grpo", False, "sdpo_token"),
            ("sdpo.tail", False, "sdpo_token_grpo"),
            ("sdpo.weight", 0.2, "sdpo_logits"),
            ("shaping_gamma", 0.2, "ditto"),
        )
    ),
    (
        "algorithm.sdpo.teacher_rate",
        0.1,
        {"algorithm.objective": "sdpo_token", "algorithm.sdpo.teacher": "live"},
        "algorithm.sdpo.teacher is ema",
    ),
    (
        "algorithm.sdpo.tail",
        False,
        {"algorithm.objective": "sdpo_logits", "algorithm.sdpo.top_k": None},
        "algorithm.sdpo.top_k is set",
    ),
    (
        "algorithm.distill.teachers",
        {},
        {"algorithm.objective": "on_policy_distillation"},
        "teachers.default=CHECKPOINT",
    ),
    ("algorithm.std_floor", 0.2, {"algorithm.norm_adv_by_std_in_grpo": False}, "norm_adv_by_std_in_grpo is set"),
    ("algorithm.old_logp", "rollout", {"algorithm.rollout_correction.rollout_is": "token"}, "Use one of the two"),
    *((f"algorithm.{option}", value, TRUNCATED, "normalized") for option, value in AS_SAMPLED),
    (f"{ACTOR}.policy_loss.loss_mode", "gspo", {"algorithm.objective": "sdpo_token"}, "has no clipped part"),
    (f"{MODEL}.use_fused_kernels", False, {"algorithm.objective": "sdpo_logits"}, "token form"),
    (f"{MODEL}.use_remove_padding", False, {"algorithm.objective": "sdpo_logits"}, "packed batch"),
    (f"{ACTOR}.clip_ratio_low", 0.1, {"algorithm.objective": "sdpo_token"}, "has no clipped part"),
    (f"{ACTOR}.loss_scale_factor", None, {f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm"}, "micro-batch"),
    (f"{ACTOR}.loss_scale_factor", 100, {}, "loss_agg_mode is seq-mean-token-sum-norm"),
    (f"{ACTOR}.clip_ratio_c", 3.0, {f"{ACTOR}.policy_loss.loss_mode": "gspo"}, "policy_loss.loss_mode is vanilla."),
    (f"{ACTOR}.kl_loss_type", "k1", {}, "only if actor_rollout_ref.actor.use_kl_loss is set"),
    (f"{ACTOR}.kl_loss_coef", 0.5, {}, "only if actor_rollout_ref.actor.use_kl_loss is set"),
    ("algorithm.rollout_correction.rollout_is_threshold", "2.0_0.5", {}, "above 0"),
    ("algorithm.rollout_correction.rollout_is_threshold", 5.0, {}, "rollout_is is set"),
    ("algorithm.rollout_correction.rollout_is_batch_normalize", True, {}, "rollout_is is set"),
    ("run.max_logprob_diff", None, {f"{ROLLOUT}.top_p": 0.9}, "weight-sync alarm"),
    (f"{ROLLOUT}.tensor_model_parallel_size", 3, {}, "must divide the 8 devices"),
    (f"{MODEL}.lora_adapter_path", "adapter", {f"{MODEL}.lora_rank": 0}, "needs actor_rollout_ref.model.lora_rank"),
    (f"{ACTOR}.optim.optimizer", "AdamWW", {}, "no such optimizer in torch.optim"),
    (f"{ACTOR}.fsdp_config.fsdp_size", 3, {}, "does not divide the 8 devices"),
    (f"{ACTOR}.checkpoint.save_lora_only", True, {f"{MODEL}.lora_rank": 0}, "needs an adapter"),
]


def check(values: dict[str, Any]) -> None:
    """Check the recipe's config with these values in it."""
    saved = {name: copy.deepcopy(OmegaConf.select(recipe(), name)) for name in values}
    try:
        for name, value in values.items():
            OmegaConf.update(recipe(), name, value, force_add=True)
        check_types(recipe(), RL_KEYS)
        run = RLRun(recipe(), Settings.from_config(recipe()))
        check_rules(rl_rules(run), run)
    finally:
        for name, before in saved.items():
            OmegaConf.update(recipe(), name, before, merge=False)


@pytest.mark.parametrize("number", range(len(WRONG)), ids=lambda number: f"{WRONG[number][0]}={WRONG[number][1]}")
def test_a_wrong_value_is_refused_by_its_rule(number: int) -> None:
    key, value, others, said = WRONG[number]
    with pytest.raises(SoulError) as refused:
        check({**others, key: value})
    first = str(getattr(refused.value, "errors", [refused.value])[0])
    assert first.startswith(f"{key}={value}: ") and said in first, refused.value


def test_all_broken_rules_are_told_but_not_what_follows_from_another() -> None:
    with pytest.raises(SeveralMistakes) as refused:
        # The default of the sync step follows from the mode's batch, which is refused already.
        check({f"{ROLLOUT}.max_model_len": 9, f"{ACTOR}.optim.optimizer": "AdamWW"})
    assert [str(error).partition("=")[0] for error in refused.value.errors] == [
        f"{ROLLOUT}.max_model_len",
        f"{ACTOR}.optim.optimizer",
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm.objective": "sdpo_token_grpo", f"{ROLLOUT}.n": 1},  # the distillation learns from one session
        {"algorithm.objective": "grpo", "refine.episode_deadline_s": 9.0, "refine.when": "always"},
        {"algorithm.objective": "sdpo_token", "refine.when": "failed", "refine.max_feedback_chars": 10},
        {f"{ACTOR}.policy_loss.loss_mode": "cispo", f"{ACTOR}.clip_ratio_low": 0.1},
        {"algorithm.rollout_correction.rollout_is": "token", "algorithm.rollout_correction.rollout_is_threshold": 5.0},
    ],
    ids=lambda values: " ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in values.items()),
)
def test_an_option_that_is_read_is_accepted(values: dict[str, Any]) -> None:
    check(values)
