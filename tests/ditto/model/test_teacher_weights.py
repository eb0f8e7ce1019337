"""Where the teacher's copies are: with the parameters while they are used, on the host while parameters are offloaded.

A CPU has one device, so "meta" stands for the accelerator: what counts is where tensors go, not their values.
test_worker_runs.py has the values, with offloading and a resume.
"""

from pathlib import Path

import pytest
import torch
from torch import nn
from verl.workers.engine import FSDPEngineWithLMHead

from ditto.model import teacher_weights
from ditto.model.engine import DittoEngine
from ditto.model.teacher_weights import TeacherWeights
from ditto.objectives.options import SdpoOptions
from ditto.settings import BadConfig


@pytest.mark.parametrize(("norm", "moves"), [(2.0, True), (float("nan"), False), (float("inf"), False)])
def test_a_moving_average_follows_only_updates_that_took_place(
    norm: float, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl leaves out an update whose gradient is not finite."""
    engine = object.__new__(DittoEngine)
    engine.teacher, engine.teacher_rate = TeacherWeights(nn.Linear(3, 2), "ema"), 0.5
    monkeypatch.setattr(FSDPEngineWithLMHead, "optimizer_step", lambda _self: norm)
    rates: list[float] = []
    monkeypatch.setattr(engine.teacher, "move", rates.append)
    engine.optimizer_step()
    assert rates == ([0.5] if moves else [])


@pytest.mark.parametrize("saved", [None, "ema", "base"])
def test_weights_of_a_start_that_no_checkpoint_holds_do_not_teach(
    saved: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies made after a resume would be of the resumed weights."""
    monkeypatch.setattr(teacher_weights, "_ranks_and_rank", lambda: (1, 0))
    monkeypatch.setattr(FSDPEngineWithLMHead, "load_checkpoint", lambda *_: None)
    if saved:
        TeacherWeights(nn.Linear(3, 2), saved).save(tmp_path)
        torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "model_world_size_1_rank_0.pt")
    engine = object.__new__(DittoEngine)
    engine.module = nn.Linear(3, 2)
    engine._follow(SdpoOptions(teacher="base"))  # a new run
    engine.load_checkpoint(str(tmp_path))
    if saved == "base":
        engine._follow(SdpoOptions(teacher="base"))
        return
    with pytest.raises(BadConfig, match=r"teacher=base.*ema or live"):
        engine._follow(SdpoOptions(teacher="base"))
    engine._follow(SdpoOptions(teacher="ema"))


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
