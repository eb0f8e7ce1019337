"""The settings of several policies: seats, objectives, adapters and turns, and what is refused."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ditto.policies import ADAPTERS
from ditto.preflight import _check_seats, check_settings
from ditto.settings import BadConfig
from soul.tasks.sotopia import Sotopia
from tests.ditto.two_policies import ASSISTANT, BOTH, USER, config_of, settings_of


def test_a_policy_has_its_seats_its_objective_and_its_adapter() -> None:
    user, assistant = BOTH.policies
    assert [each.name for each in BOTH.objectives] == ["ditto", "grpo"]
    assert (user.adapter, assistant.adapter) == ("default", "policy_assistant")
    assert [each.sampling["extra_args"] for each in BOTH.policies] == [{"ditto_adapter": 123}, {"ditto_adapter": 124}]
    assert BOTH.policy_of("partner") == assistant and BOTH.policy_of("policy") == BOTH.policy_of("Emma") == user
    assert OmegaConf.select(config_of(USER, ASSISTANT), ADAPTERS) == ["user", "assistant"]
    frozen = settings_of(USER, "policies.base={seats: [partner], objective: none}")
    assert frozen.policies[1].number == 0 and [each.name for each in frozen.in_turn(1)] == ["user"]
    assert settings_of().policies == () and settings_of().policy_of("policy") is None


def test_policies_train_together_or_in_turn() -> None:
    assert [each.name for each in BOTH.in_turn(5)] == ["user", "assistant"]
    turns = settings_of(USER, ASSISTANT, "self_play.turn_steps=2")
    assert [turns.in_turn(step)[0].name for step in range(1, 6)] == ["user", "user", "assistant", "assistant", "user"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["policies.user={seats: [partner]}"], "no policy has 'policy'"),
        ([USER, "policies.other={seats: [policy]}"], "two policies have 'policy'"),
        (["policies.user={seats: [policy], objective: none}"], "nothing would be trained"),
        (["policies.User={seats: [policy]}"], "small letters and digits"),
        (["policies.user={seats: [policy], objective: ditt}"], "ditto"),
        (["policies.user={seats: []}"], "seats"),
        ([USER, ASSISTANT, "trainer.v1.trainer_mode=ditto_colocate_async"], "ditto_sync alone"),
        ([USER, ASSISTANT, "actor_rollout_ref.model.lora_rank=0"], "each of several policies is a LoRA adapter"),
        ([USER, ASSISTANT, "policies.user.objective=sdpo_token"], "use live"),
    ],
)
def test_policies_that_cannot_be_trained_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=said):
        check_settings(config_of("actor_rollout_ref.model.lora_rank=8", f"run.dir={tmp_path}", *words))


def test_a_seat_that_no_row_has_is_refused() -> None:
    _check_seats(BOTH, {Sotopia(seats="both")})
    with pytest.raises(BadConfig, match="policies.assistant.seats: no training row has the seat partner"):
        _check_seats(BOTH, {Sotopia()})
