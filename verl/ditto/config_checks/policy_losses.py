"""The policy losses of verl that work with weights per sequence, and the options that each of them reads.

Clipped parts go through verl's policy loss, with the weight of each token in the average (`ditto/objectives/losses.py`)
as `rollout_is_weights`. A policy loss works with that if it multiplies each token's loss by the weight and adds up as
its argument `loss_agg_mode` says. Most of verl's losses do. Some average in their own way, or select tokens by a
statistic of the micro-batch, which mixes the parts of an objective; those are refused, and so is a loss that we do not
know: a loss of your own is a part of an objective (`ditto/objectives`).

`tests/ditto/config_checks/test_policy_losses.py` tries every loss that verl registers, and finds out what it reads.
"""

from __future__ import annotations

SUPPORTED = ("vanilla", "dppo_tv", "dppo_kl", "gspo", "gpg", "cispo", "dro")
AVERAGES_ROWS = "sapo"  # always averages over the tokens of a row; `ditto/objectives/losses.py` undoes that

_CLIPPED = ("clip_ratio_low", "clip_ratio_high")  # clip_ratio takes the place of one that is null
READ_BY_LOSS: dict[str, tuple[str, ...]] = {  # policy loss -> what it reads of `actor`
    **dict.fromkeys(("vanilla", "dppo_tv", "dppo_kl"), (*_CLIPPED, "clip_ratio_c")),
    **dict.fromkeys(("gspo", "cispo"), _CLIPPED),
    "sapo": ("tau_pos", "tau_neg"),
    "dro": ("policy_loss.dro_beta",),
    "gpg": (),
}
_MICRO_BATCH = "selects tokens by a statistic of the micro-batch, which mixes the parts of an objective"
UNSUPPORTED = {
    "geo_mean": "averages over the sequences of a micro-batch, whatever they weigh",
    "clip_cov": _MICRO_BATCH,
    "kl_cov": _MICRO_BATCH,
    "bypass_mode": "takes pi_old from the rollout, which for refined sequences belongs to another context",
}


def readers(option: str) -> str:
    """The policy losses that read an option, for a message."""
    return " or ".join(name for name, options in READ_BY_LOSS.items() if option in options)


def wrong_policy_loss(name: str) -> str | None:
    """The reason why `actor.policy_loss.loss_mode` cannot have this value; None if it can."""
    use = f"Use one of {', '.join(READ_BY_LOSS)}."
    if name in READ_BY_LOSS:
        return None
    if name in UNSUPPORTED:
        return f"this loss {UNSUPPORTED[name]}: sequences would get wrong weights. {use}"
    return f"there is no such policy loss. {use}"
