"""What a config rule is, and the rules that RL and supervised training share.

A rule names a key, tests whether its value is wrong, and holds the reason and what to do.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.settings import BadConfig
from soul.mistakes import Mistakes

LOGGERS = (  # verl's Tracking.supported_backend, which takes seconds to import
    *("wandb", "mlflow", "swanlab", "vemlp_wandb", "tensorboard", "console", "clearml", "trackio", "file"),
    "rl_insight",
)
# Loggers that are packages of their own -> the name to import.
_PACKAGES = {name: name for name in ("wandb", "mlflow", "swanlab", "tensorboard", "clearml", "trackio", "rl_insight")}
_PACKAGES["vemlp_wandb"] = "volcengine_ml_platform"
DTYPES = ("fp32", "float32", "bf16", "bfloat16", "fp16", "float16")


class Run:
    """What the rules inspect."""

    def __init__(self, config: DictConfig) -> None:
        self.config, self.data, self.trainer = config, config.data, config.trainer

    @property
    def devices(self) -> int:
        """Number of devices that train, over all nodes."""
        return int(self.trainer.nnodes * self.trainer.n_gpus_per_node)


@dataclass(frozen=True)
class Rule:
    """A condition that a config must not meet.

    Attributes:
        key: the key that the message names, in dotted form.
        broken: returns whether the value is wrong in this run.
        why: the reason and what to do, or a function that builds this text from the run.
    """

    key: str
    broken: Callable[[Any], Any]
    why: str | Callable[[Any], str]

    def problem(self, run: Run) -> str | None:
        """The message for the user; None if the rule is kept."""
        if not self.broken(run):
            return None
        why = self.why if isinstance(self.why, str) else self.why(run)
        return f"{self.key}={OmegaConf.select(run.config, self.key)}: {why}"


def check_rules(rules: Iterable[Rule], run: Run) -> None:
    """Check all rules. A problem that names a key which is refused already is left out: it may follow from that one.

    Raises:
        BadConfig: a rule is broken. SeveralMistakes: several are.
    """
    found, refused = Mistakes(), list[str]()
    for rule in rules:
        with found.of():
            text = rule.problem(run)
            if text and not any(key in text for key in refused):
                refused.append(rule.key)
                raise BadConfig(text)
    found.report()


def one_of(key: str, *allowed: Any, because: str = "") -> Rule:
    """A rule: the key must have one of these values."""
    names = ", ".join("null" if value is None else str(value) for value in allowed)
    why = f"use one of {names}. {because}".strip()
    return Rule(key, lambda run: OmegaConf.select(run.config, key) not in allowed, why)


def some_of(key: str, *allowed: str) -> Rule:
    """A rule: the key must be one of these values or a list of them."""
    return Rule(key, lambda run: set(_texts(run, key)) - set(allowed), f"use one or several of {', '.join(allowed)}.")


def loggers(key: str) -> tuple[Rule, Rule]:
    """Rules for the loggers of a run: verl must know them, and their packages must be installed."""

    def missing(run: Run) -> list[str]:
        packages = [_PACKAGES[name] for name in _texts(run, key) if name in _PACKAGES]
        return [package for package in packages if importlib.util.find_spec(package) is None]

    return (
        some_of(key, *LOGGERS),
        Rule(
            key,
            missing,
            lambda run: (
                f"not installed here: {', '.join(missing(run))}. Install it into this environment, or leave it out."
            ),
        ),
    )


def saved_parts(key: str) -> Rule:
    """A rule for the parts of a checkpoint: verl's state and a model that can be loaded."""
    return Rule(
        key,
        lambda run: {"model", "hf_model"} - set(_texts(run, key)),
        lambda run: (
            f"lacks {', '.join(sorted({'model', 'hf_model'} - set(_texts(run, key))))}: a checkpoint holds both verl's "
            "state to resume from (model, optimizer, extra) and a model that can be loaded (hf_model). Use "
            "[model,optimizer,extra,hf_model]."
        ),
    )


def _texts(run: Run, key: str) -> list[str]:
    value = OmegaConf.select(run.config, key)
    return [value] if isinstance(value, str) else list(value or [])


def optimizer_rules(section: str) -> tuple[Rule, ...]:
    """Rules for verl's optimizer section."""
    betas, name = f"{section}.betas", f"{section}.optimizer"
    return (
        Rule(
            betas,
            lambda run: not _are_betas(OmegaConf.select(run.config, betas)),
            "use two numbers, each at least 0 and below 1.",
        ),
        one_of(f"{section}.lr_scheduler_type", "constant", "cosine"),
        one_of(f"{section}.warmup_style", None, "constant", "cosine"),
        Rule(
            name,
            lambda run: _no_such_optimizer(OmegaConf.select(run.config, section)),
            lambda run: (
                f"there is no such optimizer in {OmegaConf.select(run.config, section).optimizer_impl} "
                f"({section}.optimizer_impl). Use AdamW from torch.optim, or install the package that provides it."
            ),
        ),
    )


def _are_betas(value: Any) -> bool:
    return len(value) == 2 and all(
        isinstance(beta, int | float) and not isinstance(beta, bool) and 0 <= beta < 1 for beta in value
    )


def _no_such_optimizer(optim: DictConfig) -> bool:
    """Whether optimizer_impl cannot be imported or has no such optimizer."""
    if importlib.util.find_spec(optim.optimizer_impl.split(".")[0]) is None:
        return True
    try:
        return not hasattr(importlib.import_module(optim.optimizer_impl), optim.optimizer)
    except ImportError:
        return True


def adapter_rule(section: str) -> Rule:
    """A rule for the adapter that a model section names."""
    key, rank = f"{section}.lora_adapter_path", f"{section}.lora_rank"
    return Rule(
        key,
        lambda run: OmegaConf.select(run.config, key) is not None and not OmegaConf.select(run.config, rank),
        f"the adapter is loaded only if {rank} is above 0. Set it to the adapter's rank.",
    )


def chosen_on_a_cpu(key: str) -> Rule:
    """A rule: null is for the CPU platform, which chooses the value by the machine's memory."""
    return Rule(
        key,
        lambda run: OmegaConf.select(run.config, key) is None and run.trainer.device == "cuda",
        "only platform=cpu chooses this value by the machine's memory. Give a number.",
    )


def checkpointing_rule(section: str) -> Rule:
    """A rule for the gradient checkpointing of a model section; the CPU's default of null gives it no type."""
    key = f"{section}.enable_gradient_checkpointing"
    return Rule(
        key,
        lambda run: OmegaConf.select(run.config, key) not in (True, False, None),
        "use true or false, or null on a CPU: only if a micro-batch does not fit without it.",
    )


def engine_rules(section: str) -> tuple[Rule, ...]:
    """Rules for the section of an FSDP engine."""
    size = f"{section}.fsdp_size"
    return (
        one_of(f"{section}.model_dtype", *DTYPES),
        Rule(
            size,
            lambda run: (shards := OmegaConf.select(run.config, size)) > 0 and run.devices % shards,
            lambda run: f"does not divide the {run.devices} devices. Use -1 to shard the weights over all of them.",
        ),
    )


TRAINER_RULES = (
    one_of("trainer.device", "cuda", "cpu"),
    *loggers("trainer.logger"),
    one_of("trainer.resume_mode", "auto", "disable", "resume_path"),
    Rule(
        "trainer.resume_from_path",
        lambda run: (
            (run.config.trainer.resume_from_path is not None) != (run.config.trainer.resume_mode == "resume_path")
        ),
        "needs trainer.resume_mode=resume_path, and the other way round: set both or neither.",
    ),
)
