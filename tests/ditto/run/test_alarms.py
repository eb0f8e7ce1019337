"""Each alarm on numbers that show its failure, and on numbers that do not."""

import logging
import random
from pathlib import Path

import pytest

from ditto.run.alarms import ALARMS, WINDOW, of_policy, raise_alarms

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
SECRET, OVERLAP = "ditto/secondary/sotopia/secret", "ditto/secondary/userllm/intent_overlap"

FIRST = {
    "ditto/reward_draft": 0.5,
    "ditto/reward_draft_error": 0.05,
    "ditto/response_tokens_draft": 20.0,
    "ditto/distinct_2": 0.6,
    "actor/entropy": 1.0,
    "ditto/context_logprob_gap": 1.0,
    "ditto/share_copied": 0.05,
}
SIGNS = {
    "invalid": {"ditto/share_invalid": 0.3},
    "length": {"ditto/response_tokens_draft": 33.0},
    "diversity": {"ditto/distinct_2": 0.25},
    "entropy": {"actor/entropy": 0.1},
    "fall": {"ditto/reward_draft": 0.25},
    "context_gap": {"ditto/context_logprob_gap": 3.5},
    "copying": {"ditto/share_copied": 0.4},
}
EARLIER = {1: FIRST, 6: FIRST}


@pytest.mark.parametrize("name", SIGNS)
def test_a_sign_raises_its_alarm_and_no_other(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        numbers = raise_alarms(7, "sdpo_token", FIRST | SIGNS[name], EARLIER)
    assert {alarm for alarm, raised in numbers.items() if raised} == {f"alarm/{name}"}
    assert [record.message for record in caplog.records if f"objective sdpo_token, alarm {name}" in record.message]


def test_two_steps_without_anything_to_learn_raise_an_alarm_and_one_does_not() -> None:
    idle = FIRST | {"ditto/groups": 4.0, "ditto/groups_idle": 4.0}
    raised = [raise_alarms(7, "grpo", idle, EARLIER | {6: before})["alarm/idle"] for before in (idle, FIRST)]
    assert raised == [1.0, 0.0]
    busy = idle | {"ditto/groups_idle": 3.0}
    assert raise_alarms(7, "grpo", busy, EARLIER | {6: idle})["alarm/idle"] == 0.0


def test_a_step_that_is_recorded_before_and_after_its_validation_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    now = FIRST | SIGNS["diversity"]
    before = raise_alarms(7, "ditto", now, EARLIER)
    assert raise_alarms(7, "ditto", now, EARLIER | {7: now | before}) == before
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("first", "now", "raised"),
    [(0.02, 0.05, 0.0), (-0.5, -1.5, 0.0), (-0.5, 3.0, 1.0), (6.0, 11.0, 0.0), (6.0, 12.5, 1.0), (0.0, 2.5, 1.0)],
)
def test_the_gap_between_contexts_must_grow_by_its_own_amount(first: float, now: float, raised: float) -> None:
    gap = "ditto/context_logprob_gap"
    numbers = raise_alarms(7, "ditto", FIRST | {gap: now}, {1: FIRST | {gap: first}, 6: FIRST})
    assert numbers["alarm/context_gap"] == raised


def test_chance_alone_is_not_a_fall() -> None:
    assert raise_alarms(7, "ditto", FIRST | {"ditto/reward_draft": 0.35}, EARLIER)["alarm/fall"] == 0.0
    near_the_top = FIRST | {"ditto/reward_draft": 1.0, "ditto/reward_draft_error": 0.0}
    for reward, raised in ((0.96, 0.0), (0.86, 1.0)):
        now = FIRST | {"ditto/reward_draft": reward, "ditto/reward_draft_error": 0.02}
        assert raise_alarms(7, "ditto", now, {1: near_the_top, 6: near_the_top})["alarm/fall"] == raised


# ---- over a window ----------------------------------------------------------------------------------------------


def run_of(slopes: dict[str, float], steps: int, seed: int = 0) -> dict[int, dict[str, float]]:
    """Numbers that change by a slope a step, with noise of 0.02."""
    chance = random.Random(seed)
    return {
        step: {key: 0.5 + slope * step + chance.gauss(0.0, 0.02) for key, slope in slopes.items()}
        for step in range(1, steps + 1)
    }


def alarms_of(slopes: dict[str, float], steps: int = 2 * WINDOW, seed: int = 0) -> set[str]:
    numbers = run_of(slopes, steps, seed)
    raised = raise_alarms(steps, "grpo", numbers.pop(steps), numbers)
    return {name.removeprefix("alarm/") for name, value in raised.items() if value}


REWARD, CANARY = "ditto/reward_draft", "ditto/canary/reward_draft"
USERS, ASSISTANTS = (f"policy/{policy}/{REWARD}" for policy in ("user", "assistant"))


@pytest.mark.parametrize(
    ("slopes", "expected"),
    [
        ({REWARD: 0.01, CANARY: -0.01}, {"canary"}),
        ({REWARD: 0.01, CANARY: 0.01}, set()),
        ({USERS: 0.01, ASSISTANTS: 0.01, CANARY: -0.01}, {"collusion"}),
        ({USERS: 0.01, ASSISTANTS: 0.01, CANARY: 0.01}, set()),
        ({USERS: -0.01, ASSISTANTS: 0.01, CANARY: -0.01}, set()),  # one of them loses
        ({REWARD: -0.01, CANARY: -0.01}, set()),
        ({REWARD: 0.01, SECRET: -0.01}, {"secondary"}),
        ({REWARD: 0.0, SECRET: -0.01}, set()),
        ({REWARD: 0.01, OVERLAP: 0.01}, {"secondary"}),  # of the words of the intent, fewer are better
        ({REWARD: 0.01, OVERLAP: -0.01}, set()),
        ({REWARD: 0.01, "ditto/secondary/sotopia/turns": -0.01}, set()),  # neither is better
        ({REWARD: 0.01, "ditto/secondary/gone/secret": -0.01}, set()),  # a task that is not installed
        ({REWARD: 0.01, "ditto/task/sotopia/reward_draft": 0.0, SECRET: -0.01}, set()),  # other tasks' reward rises
    ],
)
def test_a_reward_that_rises_while_another_number_gets_worse(slopes: dict[str, float], expected: set[str]) -> None:
    assert alarms_of(slopes) == expected
    assert alarms_of(slopes, steps=WINDOW) == set()  # too short to say


def test_a_judge_that_parts_from_a_canary_which_does_not_rise_is_seen_after_ten_steps() -> None:
    key = "ditto/canary/difference"
    level = [alarms_of({REWARD: 0.03, CANARY: -0.005, key: 0.035}, n) for n in range(1, 2 * WINDOW)]
    assert next(n for n, raised in enumerate(level, 1) if raised) == WINDOW and level[-1] == {"canary"}
    for canary in (0.03, 0.015):  # both rise, one perhaps faster than the other
        assert not alarms_of({REWARD: 0.03, CANARY: canary, key: 0.03 - canary}, WINDOW)


def test_length_that_pays_is_seen_before_it_is_extreme() -> None:
    longer, key = FIRST | {"ditto/response_tokens_draft": 25.0}, "ditto/length_reward"
    raised = [raise_alarms(7, "grpo", longer | {key: pays}, EARLIER)["alarm/length"] for pays in (0.6, 0.4)]
    assert raised == [1.0, 0.0]
    agrees = {step: FIRST | {CANARY: 0.1 * step} for step in range(1, 12)}  # the second judge likes these drafts too
    assert raise_alarms(12, "grpo", longer | {key: 0.6, CANARY: 1.2}, agrees)["alarm/length"] == 0.0


def test_chance_alone_is_not_a_trend() -> None:
    level = {REWARD: 0.0, CANARY: 0.0, SECRET: 0.0, OVERLAP: 0.0, "ditto/canary/difference": 0.0}
    assert not [seed for seed in range(200) if alarms_of(level, seed=seed)]


@pytest.mark.parametrize("key, alarm", [("ditto/kl_start", "private_code"), ("share_assistant_turns", "role_drift")])
def test_a_policy_that_leaves_its_language_or_its_role_raises_the_alarm(
    key: str, alarm: str, caplog: pytest.LogCaptureFixture
) -> None:
    for usual, last, raised in ((0.2, (0.219, 0.22), 0.0), (0.0, (0.4, 0.9), 1.0)):
        values = enumerate([usual] * 18 + [*last], start=1)
        # The assistant's is high from the start: it is what the base model does.
        steps = {step: {f"policy/user/{key}": value, f"policy/assistant/{key}": 0.3} for step, value in values}
        assert raise_alarms(20, "grpo", steps[20], steps)[f"alarm/{alarm}"] == raised
    assert f"alarm {alarm} (user)" in caplog.text


def test_a_policys_own_alarms_are_those_of_its_own_numbers() -> None:
    assert of_policy("user", {USERS: 0.5, REWARD: 0.1, "policy/userb/x": 1.0}) == {REWARD: 0.5}


def test_the_page_has_every_alarm() -> None:
    assert all(f"| `alarm/{alarm.name}` |" in PAGE for alarm in ALARMS)
