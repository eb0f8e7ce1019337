"""Sessions that never came back end the step: verl alone would fill the hole with padding and go on."""

from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

import ditto.trainer
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import MissingSessions, StepBatch
from ditto.trainer_modes import DittoTrainerSync

PROMPTS, N = 2, 2


class Trainer(DittoTrainerSync):
    """The trainer without Ray: only what counting needs."""

    def __init__(self) -> None:
        self.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"n": N}, "actor": {"data_loader_seed": 1}}})
        self.global_steps = 7
        self._asked_prompts = PROMPTS


def batch_of(sessions: list[str]) -> StepBatch:
    records = [SequenceRecord("draft", s[0], s, True, draft_reward=1.0) for s in sessions]
    return StepBatch(records, [{"task": "hitom", "row": 0, "session": s} for s in sessions])


@pytest.mark.parametrize("back", [["a_0", "a_1", "b_0"], ["a_0", "a_1"]], ids=["one session", "a whole prompt"])
def test_a_missing_session_ends_the_step(back: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ditto.trainer.StepBatch, "fetch", staticmethod(lambda _batch: batch_of(back)))
    with pytest.raises(MissingSessions, match=f"Step 7 asked for 4 sessions .* and got {len(back)}"):
        Trainer()._balance_batch(SimpleNamespace(), {})
