"""The rules that RL and supervised training share. A rule yields a problem for each value that cannot work.

The types and ranges of single keys are in `keys.py`; a rule is for values that need another value, a package or a file.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from ditto.settings import BadConfig
from soul.mistakes import Mistakes

_PACKAGES = ("wandb", "tensorboard")  # loggers that are packages of their own


class Problem(NamedTuple):
    """A key whose value cannot work, with the reason and what to do."""

    key: str
    why: str


class Run:
    """The config that the rules inspect."""

    def __init__(self, config: DictConfig) -> None:
        self.config, self.data, self.trainer = config, config.data, config.trainer

    @property
    def devices(self) -> int:
        """Number of devices that train, over all nodes."""
        return int(self.trainer.nnodes * self.trainer.n_gpus_per_node)

    def value(self, key: str) -> Any:
        """The value of a key."""
        return OmegaConf.select(self.config, key)


def check_rules(problems: Iterable[Problem], run: Run) -> None:
    """Report all problems. One that names a key which is refused already is left out: it may follow from that one.

    Raises:
        BadConfig: there is a problem. SeveralMistakes: there are several.
    """
    found, refused = Mistakes(), list[str]()
    for key, why in problems:
        text = f"{key}={run.value(key)}: {why}"
        if not any(other in text for other in refused):
            refused.append(key)
            with found.of():
                raise BadConfig(text)
    found.report()


def texts(value: Any) -> list[str]:
    """One text or several, as a list."""
    return [value] if isinstance(value, str) else list(value or [])


def trainer_rules(run: Run) -> Iterator[Problem]:
    """Rules for the trainer's section."""
    names = [name for name in texts(run.trainer.logger) if name in _PACKAGES and not importlib.util.find_spec(name)]
    if names:
        yield Problem("trainer.logger", f"not installed here: {', '.join(names)}. Install it, or leave it out.")
    if (run.value("trainer.resume_from_path") is not None) != (run.trainer.resume_mode == "resume_path"):
        yield Problem(
            "trainer.resume_from_path",
            "needs trainer.resume_mode=resume_path, and the other way round: set both or neither.",
        )


def model_rules(run: Run, model: str, optim: str, engine: str, checkpoint: str) -> Iterator[Problem]:
    """Rules for the sections of verl's model, optimizer, engine and checkpoint, by their names."""
    if not run.value(f"{model}.lora_rank"):
        if run.value(f"{model}.lora_adapter_path") is not None:
            yield Problem(f"{model}.lora_adapter_path", f"needs {model}.lora_rank: set it to the adapter's rank.")
        if run.value(f"{checkpoint}.save_lora_only"):
            yield Problem(f"{checkpoint}.save_lora_only", f"needs an adapter: set {model}.lora_rank.")
    if not _has_optimizer(run.value(optim)):
        yield Problem(
            f"{optim}.optimizer",
            f"there is no such optimizer in {run.value(optim).optimizer_impl} ({optim}.optimizer_impl). Use AdamW from "
            "torch.optim, or install the package that provides it.",
        )
    shards = run.value(f"{engine}.fsdp_size")
    if shards > 0 and run.devices % shards:
        yield Problem(
            f"{engine}.fsdp_size",
            f"does not divide the {run.devices} devices. Use -1 to shard the weights over all of them.",
        )


def chosen_on_a_cpu(run: Run, keys: Sequence[str]) -> Iterator[Problem]:
    """Rules for keys whose null is for the CPU platform, which chooses the value by the machine's memory."""
    for key in keys:
        if run.value(key) is None and run.trainer.device == "cuda":
            yield Problem(key, "only platform=cpu chooses this value by the machine's memory. Give a value.")


def _has_optimizer(optim: DictConfig) -> bool:
    """Check that optimizer_impl can be imported and has the optimizer."""
    try:
        return hasattr(importlib.import_module(optim.optimizer_impl), optim.optimizer)
    except ImportError:
        return False
