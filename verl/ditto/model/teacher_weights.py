"""The weights of SDPO's teacher: a copy of the trained parameters that takes their place for a forward pass.

The teacher is the policy itself under the feedback. Its weights are the live ones, a moving average of them, or those
the run started with; the last two are copies of this rank's shards of the trained parameters. With LoRA these are the
adapter alone, so no second model is loaded; the frozen weights serve both.

Where parameters are offloaded between updates, so are the copies: the rollout gets their memory too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from ditto.model.trained_shards import TrainedShards, shard, whole

logger = logging.getLogger(__name__)


class TeacherWeights:
    """Copies of a model's trained parameters, from when this is created.

    Args:
        module: the model, sharded by FSDP2 or not sharded.
        kind: "ema" or "base".
    """

    def __init__(self, module: nn.Module, kind: str) -> None:
        self.kind = kind
        self.live = TrainedShards(module)
        self.copies = self.live.copies()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within this context the model computes with the copies. Use it without gradients."""
        self._follow()
        live = self.live.copies()
        self.live.write(self.copies)
        try:
            yield
        finally:
            self.live.write(live)

    @torch.no_grad()
    def move(self, rate: float) -> None:
        """Move the copies towards the live weights: copy <- (1 - rate) copy + rate live."""
        self._follow()
        for name, parameter in self.live.parameters.items():
            self.copies[name].lerp_(shard(parameter), rate)

    def offload(self) -> None:
        """Keep the copies on the host until they are used again."""
        self.copies = {name: copy.cpu() for name, copy in self.copies.items()}

    def _follow(self) -> None:
        """Bring the copies to where the parameters are: offloaded ones may have come back since."""
        self.copies = {name: self.copies[name].to(shard(p).device) for name, p in self.live.parameters.items()}

    def of(self, parameter: nn.Parameter) -> Tensor | None:
        """The copy of a whole parameter, gathered from all ranks; None if it is not trained."""
        name = next((name for name, p in self.live.parameters.items() if p is parameter), None)
        return None if name is None else whole(parameter, self.copies[name])

    def save(self, path: Path) -> None:
        """Write the copies of this rank's shards, and their kind."""
        torch.save({"kind": self.kind, "copies": {name: copy.cpu() for name, copy in self.copies.items()}}, path)

    def load(self, path: Path) -> None:
        """Read copies that `save` wrote for the same parameters and the same number of ranks.

        Copies of another kind are not read: those of a moving average are not the weights that the run started with.

        Raises:
            ValueError: they are of other parameters.
        """
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["kind"] != self.kind:
            logger.warning("%s holds a teacher of kind %s: %s starts anew", path, content["kind"], self.kind)
            return
        saved = content["copies"]
        shapes = [{name: tuple(copy.shape) for name, copy in copies.items()} for copies in (saved, self.copies)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{path}: the teacher's weights are of other parameters than those being trained")
        for name, copy in saved.items():
            self.copies[name].copy_(copy)
