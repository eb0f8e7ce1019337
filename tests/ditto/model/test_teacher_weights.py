"""Where the teacher's copies are: with the parameters while they are used, on the host while parameters are offloaded.

A CPU has one device, so "meta" stands for the accelerator: what counts is where tensors go, not their values.
test_worker_runs.py has the values, with offloading and a resume.
"""

import pytest
import torch
from torch import nn
from verl.workers.engine import FSDPEngineWithLMHead

from ditto.model.engine import DittoEngine
from ditto.model.teacher_weights import TeacherWeights


def devices(teacher: TeacherWeights) -> set[str]:
    return {copy.device.type for copy in teacher.copies.values()}


@pytest.mark.parametrize("use", ["active", "move"])
def test_copies_follow_the_parameters(use: str) -> None:
    module = nn.Linear(3, 2)
    teacher = TeacherWeights(module, "ema")
    module.to("meta")
    teacher.live.parameters = dict(module.named_parameters())  # FSDP2 keeps the parameter objects when it moves them
    assert devices(teacher) == {"cpu"}
    if use == "move":
        teacher.move(0.5)
    else:
        with torch.no_grad(), teacher.active():
            assert {p.device.type for p in module.parameters()} == {"meta"}
    assert devices(teacher) == {"meta"}


def test_copies_are_offloaded_with_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy made before a resume and one made after it are then in the same place between updates."""
    moved: list[tuple[str, bool]] = []
    monkeypatch.setattr(FSDPEngineWithLMHead, "to", lambda _self, device, model, **_: moved.append((device, model)))
    engine = object.__new__(DittoEngine)
    engine.to("cpu")  # an engine without a teacher
    engine.teacher = TeacherWeights(nn.Linear(3, 2), "ema")
    offloads: list[str] = []
    monkeypatch.setattr(engine.teacher, "offload", lambda: offloads.append("host"))
    engine.to("cuda", model=True)
    engine.to("cpu", model=False, optimizer=True)
    assert not offloads
    engine.to("cpu", model=True)
    assert offloads == ["host"]
    assert moved == [("cpu", True), ("cuda", True), ("cpu", False), ("cpu", True)]


def test_offloaded_copies_keep_their_values() -> None:
    module = nn.Linear(3, 2)
    teacher = TeacherWeights(module, "base")
    before = {name: copy.clone() for name, copy in teacher.copies.items()}
    teacher.offload()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        with teacher.active():
            assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
    assert not any(p.any() for p in module.parameters())
