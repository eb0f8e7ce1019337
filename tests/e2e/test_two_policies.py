"""Two policies play both seats of Sotopia and learn, each with its own adapter: Ray, FSDP2 and vLLM, on the CPU.

One run of two steps, killed in the third, and resumed for two more: the user learns with DITTO, the assistant with GRPO.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI
from tests.e2e import every_task

pytestmark = pytest.mark.e2e
POLICIES = ["policies.user.seats=[policy]", "policies.user.objective=ditto"]
POLICIES += ["policies.assistant.seats=[partner]", "policies.assistant.objective=grpo"]
OVERRIDES = [
    *POLICIES,
    "tasks.sotopia.seats=both",
    "actor_rollout_ref.model.lora_rank=4",
    "data.max_turn_length=48",
    "data.train_batch_size=2",
    "trainer.val_before_train=false",
    "trainer.save_freq=1",
]


def adapter(run: Path, step: int, policy: str) -> dict[str, Tensor]:
    folder = run / f"global_step_{step}" / ("lora_adapter" if policy == "user" else f"lora_adapter_{policy}")
    return load_file(folder / "adapter_model.safetensors")


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> every_task.Outcome:
    folder = tmp_path_factory.mktemp("two")
    every_task.prepare(folder, "sotopia", steps=120)
    with FakeOpenAI(answer) as judge:
        return every_task.train(folder, "sotopia", judge.url, 900, OVERRIDES)


def test_both_policies_learn_and_each_from_its_own_rows(outcome: every_task.Outcome) -> None:
    assert outcome.problems() == [], (outcome.folder / "log.txt").read_text(errors="replace")[-6000:]
    run = outcome.folder / "run"
    for policy in ("user", "assistant"):
        traces = [trace for trace in outcome.sessions if trace["policy"] == policy]
        assert {trace["side"] for trace in traces} == {"" if policy == "user" else "partner"}
        assert len(traces) == 8
        kinds = {sequence["kind"] for trace in traces for sequence in trace["sequences"] if not sequence["masked"]}
        assert kinds <= ({"draft", "refined_base", "refined_feedback"} if policy == "user" else {"draft"})
        assert f"policy/{policy}/ditto/reward_draft" in outcome.metrics[2]
        assert outcome.metrics[2][f"policy/{policy}/training/rollout_logprob_diff_mean"] < 0.05
        assert distance(adapter(run, 1, policy), adapter(run, 2, policy)) > 0
    assert distance(adapter(run, 2, "user"), adapter(run, 2, "assistant")) > 1e-3
    for trace in outcome.sessions:
        numbers: dict[str, Any] = trace["draft"]
        assert list(numbers["seats"]) == [trace["side"] or "policy"]
    config = json.loads((run / "run.json").read_text())["config"]
    assert list(config["policies"]) == ["user", "assistant"]
