"""A LoRA run and its judge: one cap over several agent-loop workers, bill, budget, key, outage, resume, evaluation.

First start, on a Ray cluster that runs already and whose nodes name another judge and another key: the judge has a
price, the budget covers a step or two, so the run saves and ends by itself; the same command with a lower budget then
says so at once. Second start, on a cluster of its own, with a larger budget: it resumes, validates with the resumed
adapter, trains on; then the judge goes out, the run saves and stops. Last, `eval.sh local` evaluates the first start's
checkpoint.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.testing import ChatRequest, FakeOpenAI, Json, Reply, ServerError
from tests.e2e.cluster import Cluster
from tests.e2e.run import ROOT, SENTINEL_KEY, Run, greedy_answers

pytestmark = pytest.mark.e2e

CAP, PRICE = 2, 10.0  # requests in flight over the run; US dollars per million words, in and out
BUDGET = "judge.budget_usd=0.1"
ANSWER = {"critique": "Ask what the character saw last.", "ready": True}
SETS = ("stories", "opinions")  # a rule scores the ones, the judge the others


CPUS = 6  # of Ray's: all that one device takes (ray_cluster.needed)
OF_THE_NODES = {"OPENAI_API_KEY": "sk-of-the-nodes", "JUDGE_MODEL_NAME": "judge-of-the-nodes"}


class Finished:
    """A run that its budget ended, what its judge and the nodes' saw of it, and what its processes looked like."""

    def __init__(
        self,
        run: Run,
        fake: FakeOpenAI,
        of_the_nodes: FakeOpenAI,
        ray_logs: Path,
        code: int,
        command_lines: set[str],
        pids_of_the_nodes: set[int],
    ) -> None:
        self.run, self.fake, self.of_the_nodes, self.ray_logs = run, fake, of_the_nodes, ray_logs
        self.code, self.command_lines, self.pids_of_the_nodes = code, command_lines, pids_of_the_nodes
        self.steps = len(run.metrics())
        self.checkpoint = run.dir / f"global_step_{self.steps}"
        self.usage: dict[str, dict[str, float]] = json.loads((run.dir / "usage.json").read_text())


def command_lines(processes: Sequence[psutil.Process]) -> set[str]:
    lines = set()
    for process in processes:
        try:
            lines.add(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return lines


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("judge")
    pq.write_table(pq.read_table(world / "heldback.parquet").slice(0, 8), folder / "stories.parquet")
    write(["humanual-opinion"], 4, folder / "opinions.parquet")
    with FakeOpenAI(Json(ANSWER, delay=0.1)) as fake, FakeOpenAI(Json(ANSWER)) as of_the_nodes:
        validation = " ".join(f"{folder}/{name}.parquet" for name in SETS)
        train = Path(os.path.relpath(world / "train.parquet", ROOT))
        run = Run(folder, train, validation, world / "warm", fake.url)
        run.overrides = [
            "actor_rollout_ref.rollout.agent.num_workers=2",
            "actor_rollout_ref.actor.optim.lr=3e-3",
            "trainer.total_training_steps=40",
            "trainer.save_freq=100",
            "trainer.test_freq=-1",
            "trainer.val_before_train=false",
            "judge.max_attempts=1",
            "judge.max_reasks=0",
            f"judge.concurrency={CAP}",
            f"judge.price_in={PRICE}",
            f"judge.price_out={PRICE}",
            BUDGET,
            f"run.dir={os.path.relpath(run.dir, ROOT)}",  # the nodes have another working directory
        ]
        lines: set[str] = set()
        pids: set[int] = set()
        with Cluster(CPUS, {**OF_THE_NODES, "OPENAI_BASE_URL": of_the_nodes.url}) as cluster:
            run.environment = {"RAY_ADDRESS": cluster.address, **cluster.access}
            run.start()

            def seen() -> bool:
                of_the_cluster = cluster.processes()
                pids.update(process.pid for process in of_the_cluster)
                lines.update(command_lines([*run.descendants(), *of_the_cluster]))
                return (run.dir / "metrics.jsonl").exists()

            run.until(seen, 420, "step 1")
            code = run.wait(300)
            cluster.stop()
            yield Finished(run, fake, of_the_nodes, cluster.session, code, lines, pids)


def test_the_budget_ends_the_run_with_a_checkpoint_and_without_an_error(finished: Finished) -> None:
    log = finished.run.log.read_text(errors="replace")
    assert finished.code == 0, finished.run.tail()
    steps, spent = finished.steps, finished.usage["total"]["cost_usd"]
    assert 1 <= steps < 10 and finished.run.tracked_step() == steps
    assert (finished.checkpoint / "config.json").exists()
    # What the next step costs is estimated from the steps before it: it may be off by a third of a step.
    step = spent / steps
    assert spent - step / 3 < 0.1 <= spent + 4 / 3 * step, "it ends when the next step would not fit"
    assert "of judge.budget_usd=$0.10 is spent" in log and "What the judges cost" in log


def test_the_cap_holds_over_all_agent_loop_workers(finished: Finished) -> None:
    assert finished.fake.peak == CAP


def test_the_bill_is_what_the_endpoint_saw(finished: Finished) -> None:
    """Requests, tokens and money: counted by the judge's server, in the traces, and in usage.json."""
    asked = [request for request in finished.fake.requests if "ping" not in request.data]
    words_in = sum(len(request.text.split()) for request in asked)
    words_out = len(asked) * len(json.dumps(ANSWER).split())
    total = finished.usage["total"]
    assert (total["requests"], total["prompt_tokens"], total["completion_tokens"]) == (len(asked), words_in, words_out)
    assert total["cost_usd"] == pytest.approx((words_in + words_out) * PRICE / 1e6)
    traces = [t for step in range(1, finished.steps + 1) for t in finished.run.traces(f"step_{step:06d}")]
    assert sum(u["calls"] for t in traces for u in t["usage"].values()) == total["calls"]
    assert set(finished.usage["tasks"]["hitom"]) == {"feedback"}  # the role that writes critiques; rules score
    assert total["latency_p50_s"] > 0.1


def test_the_nodes_of_a_cluster_that_runs_decide_nothing(finished: Finished) -> None:
    """Its environment names another judge, its working directory is another one."""
    assert finished.of_the_nodes.requests == []
    assert {request.headers["authorization"] for request in finished.fake.requests} == {f"Bearer {SENTINEL_KEY}"}
    assert "judge-of-the-nodes" not in {request.body["model"] for request in finished.fake.requests}
    log = finished.run.log.read_text(errors="replace")
    assert "Connecting to existing Ray cluster" in log
    for name in ("DittoTaskRunner", "AgentLoopWorkerTQ"):
        assert {int(pid) for pid in re.findall(rf"\({name} pid=(\d+)\)", log)} & finished.pids_of_the_nodes, name


def test_equal_questions_were_asked_once(finished: Finished) -> None:
    asked = [
        json.dumps(request.data, sort_keys=True) for request in finished.fake.requests if "ping" not in request.data
    ]
    assert len(asked) == len(set(asked))


def test_the_key_is_in_no_artefact_no_log_of_ray_and_no_command_line(finished: Finished) -> None:
    assert finished.fake.requests[0].headers["authorization"] == f"Bearer {SENTINEL_KEY}"  # it was used ...
    shows_nowhere(finished.run.folder, finished.ray_logs, finished.command_lines)


def shows_nowhere(run_folder: Path, ray_logs: Path, command_lines: set[str]) -> None:
    for folder in (run_folder, ray_logs):
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert len(files) > 10
        assert [path for path in files if SENTINEL_KEY.encode() in path.read_bytes()] == []
    assert len(command_lines) > 5
    assert not [line for line in command_lines if SENTINEL_KEY in line]


def test_the_bill_is_there_for_people(finished: Finished) -> None:
    bill = finished.run.log.read_text(errors="replace").partition("What the judges cost")[2][:2000]
    assert "hitom" in bill and "feedback" in bill and re.search(r"\$0\.(0[1-9]|1\d)", bill)  # near the budget of $0.10


def test_the_same_command_says_that_the_budget_is_spent(finished: Finished) -> None:
    """Spent is spent, also after the run: a lower budget is refused before any engine starts."""
    finished.run.start(BUDGET.replace("0.1", "0.01"))
    assert finished.run.wait(120) == 2
    assert "judge.budget_usd=0.01 is spent" in finished.run.log.read_text(errors="replace")


def test_the_checkpoint_is_a_merged_model_with_its_adapter_beside(finished: Finished, world: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = finished.checkpoint
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(world / "warm", dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    before = base(ids).logits
    adapted = PeftModel.from_pretrained(base, folder / "lora_adapter")(ids).logits
    assert json.loads((folder / "lora_adapter" / "adapter_config.json").read_text())["r"] == 32
    torch.testing.assert_close(merged(ids).logits, adapted, atol=1e-4, rtol=1e-4)
    assert (adapted - before).abs().max() > 1e-3, "the adapter was not trained"


class Outage:
    """A judge by rule that goes out once the run has written this step's traces."""

    def __init__(self, traces: Path) -> None:
        self.traces = traces

    def __call__(self, request: ChatRequest) -> Reply:
        return ServerError(status=503) if self.traces.exists() else answer(request)


@dataclass(frozen=True)
class Resumed:
    """The second start, which made one step more, and one that met no judge."""

    code: int
    command_lines: set[str]

    @property
    def ray_logs(self) -> Path:
        found = {m[1] for line in self.command_lines if (m := re.search(r"--session[-_]dir=(\S+)", line))}
        assert len(found) == 1, found
        return Path(found.pop())


@pytest.fixture(scope="module")
def resumed(finished: Finished) -> Resumed:
    run, step = finished.run, finished.steps + 1
    first_traces = run.dir / "traces" / f"step_{step:06d}.jsonl"
    lines: set[str] = set()
    with FakeOpenAI(Outage(first_traces)) as judge:
        run.judge_url, run.environment = judge.url, {}
        # The first start validates nothing: a validation that belongs to the resumed step is caught up on.
        run.start(f"trainer.test_freq={finished.steps}", BUDGET.replace("0.1", "100"))

        def seen() -> bool:
            lines.update(command_lines(run.descendants()))
            return first_traces.exists()

        run.until(seen, 420, f"step {step}")
        return Resumed(run.wait(420), lines)


def test_a_cluster_of_its_own_does_not_show_the_key_either(finished: Finished, resumed: Resumed) -> None:
    shows_nowhere(finished.run.folder, resumed.ray_logs, resumed.command_lines)


def test_a_resumed_run_generates_with_the_adapter(finished: Finished, resumed: Resumed) -> None:
    traces = [trace for trace in finished.run.traces(f"val_{finished.steps:06d}") if trace["task"] == "hitom"]
    prompts = [t["draft"]["seats"]["policy"][0]["content"] for t in traces]
    answers = [t["draft"]["seats"]["policy"][-1]["content"] for t in traces]
    assert answers == greedy_answers(finished.checkpoint, prompts, 32)


def test_an_outage_of_the_judge_saves_and_stops(finished: Finished, resumed: Resumed) -> None:
    step, log = finished.steps + 2, finished.run.log.read_text(errors="replace")
    assert resumed.code != 0
    # A session whose policy says nothing asks no judge, so it need not be all of them.
    assert re.search(rf"JudgeOutage: Step {step}: the judge failed in \d+% of 8 sessions", log)
    assert finished.run.judge_url in log and "server_error" in log and "Traceback" not in log
    assert re.search(r"\d\d:\d\d:\d\d INFO ditto\.trainer: ", log)  # from the trainer's process, in our format
    assert finished.run.tracked_step() == step


def test_an_evaluation_of_the_checkpoint_and_of_its_adapter_is_the_validation(
    finished: Finished, resumed: Resumed, tmp_path: Path
) -> None:
    """Same rows, same weights, greedy: what the trainer validated, `eval.sh local` finds; merged, and as an adapter."""
    run, folder = finished.run, finished.checkpoint
    base = json.loads((folder / "lora_adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert base == str(run.model)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "JUDGE_"))}
    with FakeOpenAI(answer) as judge:
        environment = {
            **known,
            "PLATFORM": "cpu",
            "ACTOR_MODEL_PATH": f"{folder} {folder}/lora_adapter",
            "TASKS": str(run.val),
            "OUTPUT_DIR": str(tmp_path),
            "EXPERIMENT_NAME": "same",
            "OPENAI_BASE_URL": judge.url,
            "OPENAI_API_KEY": SENTINEL_KEY,
        }
        words = ["policy.temperature=0", "policy.max_output_tokens=32", "--max-prompt-tokens", "600"]
        command = ["bash", str(ROOT / "recipe/ditto/eval.sh"), "local", *words, "--", "--max-model-len", "1024"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=420)
    validated = {(t["task"], t["row"]): t["draft"] for t in run.traces(f"val_{finished.steps:06d}")}
    assert len(validated) == 12
    metrics = run.metrics()[finished.steps]
    evaluations = sorted(path.parent for path in tmp_path.glob("same-*/results.json"))
    assert len(evaluations) == 2
    for evaluation in evaluations:
        samples = [json.loads(line) for line in (evaluation / "samples.jsonl").open()]
        found = {(sample["task"], sample["row"]): sample["draft"] for sample in samples}
        assert {key: words_of(draft) for key, draft in found.items()} == {
            key: words_of(draft) for key, draft in validated.items()
        }
        assert {key: draft["reward"] for key, draft in found.items()} == {
            key: draft["reward"] for key, draft in validated.items()
        }
        sets = json.loads((evaluation / "results.json").read_text())["sets"]
        assert sets["stories"]["mean"] == pytest.approx(metrics["val/hitom/reward"])
        assert sets["opinions"]["mean"] == pytest.approx(metrics["val/humanual-opinion/reward"])
    assert f"run-{folder.name}-lora_adapter" in (tmp_path / "same-models.md").read_text()
    running = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in running if " serve " in line and str(folder) in line], "a server was left behind"


def words_of(draft: dict[str, Any]) -> str:
    return str(draft["seats"]["policy"][-1]["content"])
