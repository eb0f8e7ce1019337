"""Which of verl's policy losses work with weights per sequence, and which options each of them reads.

Clipped parts go through verl's policy loss, with what each token weighs in the average (`ditto/objectives/losses.py`)
as `rollout_is_weights`. A policy loss works with that if it multiplies each token's loss by the weight and adds up as
its argument `loss_agg_mode` says. Most of verl's losses do. Some average in their own way, or select tokens by a
statistic of the micro-batch, which mixes the parts of an objective; those are refused.

`tests/ditto/config_checks/test_policy_losses.py` runs `follows_weights` on every loss that verl registers, and finds
out what each one reads. A loss of the user's own (`actor_rollout_ref.model.external_lib`) is checked for its weights in
the same way before the run starts, and may read any option.
"""

from __future__ import annotations

import random
from typing import Any

from omegaconf import DictConfig

SUPPORTED = ("vanilla", "dppo_tv", "dppo_kl", "gspo", "gpg", "cispo", "dro")
AVERAGES_ROWS = "sapo"  # always averages over the tokens of a row; `ditto/objectives/losses.py` undoes that

PI_OLD = "pi_old"  # stands beside options in READ_BY_LOSS: the loss has a ratio to pi_old
_CLIPPED = ("clip_ratio_low", "clip_ratio_high", PI_OLD)  # clip_ratio takes the place of one that is null
READ_BY_LOSS: dict[str, tuple[str, ...]] = {  # policy loss -> what it reads of `actor`
    **dict.fromkeys(("vanilla", "dppo_tv", "dppo_kl"), (*_CLIPPED, "clip_ratio_c")),
    **dict.fromkeys(("gspo", "cispo"), _CLIPPED),
    "sapo": ("tau_pos", "tau_neg", PI_OLD),
    "dro": ("policy_loss.dro_beta", PI_OLD),
    "gpg": (),
}

_MICRO_BATCH = "selects tokens by a statistic of the micro-batch, which mixes the parts of an objective"
UNSUPPORTED = {
    "geo_mean": "averages over the sequences of a micro-batch, whatever they weigh",
    "clip_cov": _MICRO_BATCH,
    "kl_cov": _MICRO_BATCH,
    "bypass_mode": "takes pi_old from the rollout, which for refined sequences belongs to another context",
}


def reads(loss_mode: str, option: str) -> bool:
    """Whether a policy loss reads an option of `actor`, or PI_OLD."""
    return option in READ_BY_LOSS.get(loss_mode, (option,))


def readers(option: str) -> str:
    """The policy losses that read it, for a message."""
    return " or ".join(name for name, options in READ_BY_LOSS.items() if option in options)


def wrong_policy_loss(config: DictConfig) -> str | None:
    """Why `actor.policy_loss.loss_mode` cannot be used here; None where it can."""
    actor = config.actor_rollout_ref.actor
    name, library = str(actor.policy_loss.loss_mode), config.actor_rollout_ref.model.external_lib
    libraries = [library] if isinstance(library, str) else list(library or [])
    use = f"Use one of {', '.join((*SUPPORTED, AVERAGES_ROWS))}."
    if name in (*SUPPORTED, AVERAGES_ROWS):
        return None
    if name in UNSUPPORTED:
        return f"this loss {UNSUPPORTED[name]}: sequences would get wrong weights. {use}"
    if not libraries:
        return (
            f"verl has no such policy loss. {use} A module named in actor_rollout_ref.model.external_lib may add one."
        )
    return _wrong_own_loss(name, libraries, actor, use)


def _wrong_own_loss(name: str, libraries: list[str], actor: DictConfig, use: str) -> str | None:
    """Why the user's own loss cannot be used: it is not registered, or it ignores the weights. None if it can."""
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.import_utils import import_external_libs

    try:
        import_external_libs(libraries)
    except ImportError as error:
        return f"actor_rollout_ref.model.external_lib={libraries} cannot be imported ({error})."
    if name not in POLICY_LOSS_REGISTRY:
        return (
            f"neither verl nor actor_rollout_ref.model.external_lib={libraries} has such a policy loss. {use} A module "
            f"adds one by @register_policy_loss({name!r}) of verl.trainer.ppo.core_algos."
        )
    if not follows_weights(POLICY_LOSS_REGISTRY[name], omega_conf_to_dataclass(actor)):
        return (
            "this loss does not follow the weights of the sequences: multiply each token's loss by rollout_is_weights, "
            "then aggregate by agg_loss(..., loss_agg_mode=loss_agg_mode, **config.global_batch_info), as verl's "
            "compute_policy_loss_vanilla does."
        )
    return None


def follows_weights(loss: Any, config: Any) -> bool:
    """Whether a policy loss multiplies each token by its weight and adds up, as `objectives/losses.py` calls it.

    In a small batch each row repeats one token, so the loss of a row follows from the loss of a row with one token. The
    loss of the batch must be the weighted sum over all tokens.

    Args:
        loss: as registered with verl.
        config: verl's ActorConfig; its `global_batch_info` is overwritten.
    """
    import torch

    rng = random.Random(0)
    lengths, weights = (3, 1, 5, 4, 2), (0.5, 2.0, 1.0, 0.0, 3.0)
    old = [-rng.uniform(0.1, 4.0) for _ in lengths]
    new = [value + rng.uniform(-0.5, 0.5) for value in old]
    advantages = [-2.0, 2.0, 3.0, 1.0, -1.0]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    config.global_batch_info.update(dp_size=1, batch_num_tokens=1, global_batch_size=1, loss_scale_factor=1)

    def loss_of(rows: list[int], counted: Any, weight: list[float]) -> float:
        def column(values: Any) -> Any:
            return torch.tensor([values[row] for row in rows], dtype=torch.float64)[:, None] * counted

        value, _ = loss(
            old_log_prob=column(old),
            log_prob=column(new),
            advantages=column(advantages),
            response_mask=counted,
            loss_agg_mode="token-sum",
            config=config,
            rollout_is_weights=column(weight),
        )
        return float(value)

    batch = loss_of(list(range(len(lengths))), mask, list(weights))
    one = torch.ones(1, 1, dtype=torch.bool)
    expected = sum(
        weight * n * loss_of([row], one, [1.0] * len(lengths))
        for row, (n, weight) in enumerate(zip(lengths, weights, strict=True))
    )
    return abs(batch - expected) < 1e-6 * max(1.0, abs(expected))
