"""The dropouts of a model while it trains: with dropout, the log-probs of an update are not those of a pass."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def active_dropout(model: nn.Module) -> list[str]:
    """The model's dropouts above 0, sorted: its Dropout modules and the rates in its configs.

    Attention drops by a rate of the config, without a module; LoRA has modules and a config of its own.
    """
    names = {name for name, part in model.named_modules() if isinstance(part, nn.Dropout | nn.AlphaDropout) and part.p}
    for module in model.modules():
        config = getattr(module, "config", None)
        for settings in (config, getattr(config, "text_config", None)):
            names |= {key for key, rate in _rates(settings).items() if rate}
    return sorted(names)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Within this context the model drops nothing; afterwards it is in the mode that it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _rates(config: object) -> dict[str, float]:
    """The rates of a transformers config, by their names: attention_dropout, resid_pdrop, router_jitter_noise, ..."""
    values = config if isinstance(config, dict) else getattr(config, "__dict__", {})
    return {
        key: value
        for key, value in values.items()
        if re.search("dropout|pdrop|drop_path|jitter", key)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    }
