"""The rules that RL and supervised training share.

The types and ranges of single keys are in `keys.py`; a rule is for values that need another value, a package or a file.
"""

import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.settings import BadConfig
from soul.errors import Mistakes

Rule = tuple[str, Any, str]  # key, true if its value cannot work, reason and remedy
_PACKAGES = ("wandb", "tensorboard")  # loggers that are packages of their own


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


def check_rules(rules: Iterable[Rule], run: Run) -> None:
    """Report all rules that are broken. One that names a key which is refused already may follow from that one.

    Raises:
        BadConfig: a rule is broken. SeveralMistakes: several are.
    """
    found, refused = Mistakes(), list[str]()
    for key, broken, why in rules:
        text = f"{key}={run.value(key)}: {why}"
        if broken and not any(other in text for other in refused):
            refused.append(key)
            with found.of():
                raise BadConfig(text)
    found.report()


def texts(value: Any) -> list[str]:
    """One text or several, as a list."""
    return [value] if isinstance(value, str) else list(value or [])


def trainer_rules(run: Run) -> Iterator[Rule]:
    """Rules for the trainer's section."""
    names = [name for name in texts(run.trainer.logger) if name in _PACKAGES and not importlib.util.find_spec(name)]
    yield "trainer.logger", names, f"not installed here: {', '.join(names)}. Install it, or leave it out."
    yield (
        "trainer.resume_from_path",
        (run.value("trainer.resume_from_path") is not None) != (run.trainer.resume_mode == "resume_path"),
        "needs trainer.resume_mode=resume_path, and the other way round: set both or neither.",
    )


def model_rules(run: Run, model: str, optim: str, engine: str, checkpoint: str) -> Iterator[Rule]:
    """Rules for the sections of verl's model, optimizer, engine and checkpoint, by their names."""
    full = not run.value(f"{model}.lora_rank")
    adapter, alone = f"{model}.lora_adapter_path", f"{checkpoint}.save_lora_only"
    yield (
        adapter,
        full and run.value(adapter) is not None,
        f"needs {model}.lora_rank: set it to the adapter's rank.",
    )
    yield alone, full and run.value(alone), f"needs an adapter: set {model}.lora_rank."
    yield (
        f"{optim}.optimizer",
        not _has_optimizer(run.value(optim)),
        f"there is no such optimizer in {run.value(optim).optimizer_impl} ({optim}.optimizer_impl). Use AdamW from "
        "torch.optim, or install the package that provides it.",
    )
    shards = run.value(f"{engine}.fsdp_size")
    yield (
        f"{engine}.fsdp_size",
        shards > 0 and run.devices % shards,
        f"does not divide the {run.devices} devices. Use -1 to shard the weights over all of them.",
    )


def chosen_on_a_cpu(run: Run, keys: Sequence[str]) -> Iterator[Rule]:
    """Rules for keys whose null is for the CPU platform, which chooses the value by the machine's memory."""
    for key in keys:
        is_open = run.value(key) is None and run.trainer.device == "cuda"
        yield key, is_open, "only platform=cpu chooses this value by the machine's memory. Give a value."


def _has_optimizer(optim: DictConfig) -> bool:
    """Check that optimizer_impl can be imported and has the optimizer."""
    try:
        return hasattr(importlib.import_module(optim.optimizer_impl), optim.optimizer)
    except ImportError:
        return False
