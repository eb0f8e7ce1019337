"""Two policies play both seats of Sotopia and learn, each with its own adapter: Ray, FSDP2 and vLLM, on the CPU.

The user learns with DITTO, the assistant with GRPO; both in step 1, after which the run is killed with -9. The same
command resumes it, now in turns: step 2 trains the assistant, step 3 the user.
"""

import signal
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from torch import Tensor

from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI
from tests.e2e import every_task
from tests.e2e.run import processes_of

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
    "actor_rollout_ref.actor.entropy_coeff=0.01",  # so that every update moves its adapter, whatever is written
    "trainer.save_freq=1",
]


def adapter(run: Path, step: int, policy: str) -> dict[str, Tensor]:
    folder = run / f"global_step_{step}" / ("lora_adapter" if policy == "user" else f"lora_adapter_{policy}")
    return load_file(folder / "adapter_model.safetensors")


def distance(one: dict[str, Tensor], other: dict[str, Tensor] | None = None) -> float:
    """The largest difference of two adapters; without another one, the largest weight of the second factors."""
    if other is None:
        return max(float(tensor.abs().max()) for name, tensor in one.items() if ".lora_B." in name)
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def kill(out: Path) -> None:
    """Kill everything that the run has started once its first checkpoint is published."""
    published = out / "run" / "latest_checkpointed_iteration.txt"
    deadline = time.monotonic() + 600
    while not published.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in processes_of(out):
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> every_task.Outcome:
    folder = tmp_path_factory.mktemp("two")
    every_task.prepare(folder, "sotopia", steps=120)
    with FakeOpenAI(answer) as judge:
        killed = every_task.train(folder, "sotopia", judge.url, 900, OVERRIDES, kill)
        assert killed.code != 0 and sorted(killed.metrics) == [1]
        turns = ["self_play.turn_steps=1", "trainer.resume_changed=true", "trainer.total_training_steps=3"]
        return every_task.train(folder, "sotopia", judge.url, 900, [*OVERRIDES, *turns])


def test_both_policies_learn_together_and_in_turn_and_survive_a_kill(outcome: every_task.Outcome) -> None:
    assert outcome.problems() == [], (outcome.folder / "log.txt").read_text(errors="replace")[-6000:]
    run, (user, assistant) = outcome.folder / "run", ("user", "assistant")
    assert all(distance(adapter(run, 1, name)) > 0 for name in (user, assistant)), "a new adapter's product is 0"
    for step, learner, frozen in ((2, assistant, user), (3, user, assistant)):
        assert distance(adapter(run, step - 1, frozen), adapter(run, step, frozen)) == 0
        assert distance(adapter(run, step - 1, learner), adapter(run, step, learner)) > 0
        numbers = outcome.metrics[step]
        assert numbers[f"policy/{learner}/training/rollout_logprob_diff_mean"] < 0.02, "served as it is trained"
        assert f"policy/{frozen}/training/rollout_logprob_diff_mean" not in numbers
        assert all(f"policy/{name}/ditto/reward_draft" in numbers for name in (user, assistant))


def test_every_play_is_a_session_of_each_policy(outcome: every_task.Outcome) -> None:
    for policy, side in (("user", ""), ("assistant", "partner")):
        traces = [trace for trace in outcome.sessions if trace["policy"] == policy]
        assert len(traces) == 3 * 4 and {trace["side"] for trace in traces} == {side}
        assert all(list(trace["draft"]["seats"]) == [side or "policy"] for trace in traces)
        kinds = {sequence["kind"] for trace in traces for sequence in trace["sequences"] if not sequence["masked"]}
        assert kinds <= ({"draft", "refined_base", "refined_feedback"} if policy == "user" else {"draft"})
        assert any(trace["refined"] for trace in traces) == (policy == "user")


def test_a_lost_sync_of_one_adapter_ends_the_run_and_names_it(outcome: every_task.Outcome, tmp_path: Path) -> None:
    for name in ("data", "model"):
        (tmp_path / name).symlink_to(outcome.folder.parents[1] / name)
    lost = ["trainer.v1.sampler.custom_sampler.path=pkg://tests.e2e.lost_adapter", "trainer.save_freq=-1"]
    lost += ["run.max_unchanged_syncs=2", "run.max_logprob_diff=100", "trainer.total_training_steps=6"]
    with FakeOpenAI(answer) as judge:
        ended = every_task.train(tmp_path, "sotopia", judge.url, 900, [*OVERRIDES, *lost])
    log = (ended.folder / "log.txt").read_text(errors="replace")
    named = "WeightsOutOfSync: Step 3: rollout server 0 with the adapter of assistant answers"
    assert ended.code != 0 and named in log, log[-6000:]
