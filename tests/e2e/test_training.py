"""DITTO on real components: Ray, two FSDP2 workers, two vLLM replicas, a judge behind HTTP that fails now and then.

One story, told by one run: a fifth of the judge's answers are faults; kill -9 in the validation of a published step;
the same command again; then everything the run left is checked against an independent count. `python -m
benchmarks.kills` kills at many other moments.
"""

import json
import shutil
import statistics
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from benchmarks.kills import kill, started, wait_for_point
from ditto.run import manifest
from soul.record import SessionRecord, read_records
from soul.testing import (
    ChatRequest,
    DropConnection,
    Empty,
    FakeOpenAI,
    Hang,
    Json,
    RateLimit,
    Refusal,
    Reply,
    ServerError,
    TruncatedJson,
)
from tests.e2e.run import SENTINEL_KEY, Run, greedy_answers
from tests.metric_names import undocumented

pytestmark = pytest.mark.e2e

STEPS, PROMPTS, N = 6, 4, 2
KINDS = ("draft", "refined_base", "refined_feedback")
CRITIQUE = {"critique": "You answered where the thing is now. Ask what the character saw last.", "ready": True}
FAULTS = [Empty(), Refusal(), TruncatedJson(), ServerError(), RateLimit(retry_after=0.01), Hang(20), DropConnection()]


def every_fifth_fails(request: ChatRequest) -> Reply:
    """Every fifth request is a fault, of all kinds in turn; retries are off, so each one is a failure."""
    turn, place = divmod(request.number, 5)
    if place < 4 or "ping" in request.data:
        return Json(CRITIQUE)
    return FAULTS[turn % len(FAULTS)]


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """Return the finished run, killed once on its way; `first_try` keeps the traces of before the kill."""
    folder = tmp_path_factory.mktemp("training")
    with FakeOpenAI(every_fifth_fails) as judge:
        run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", judge.url)
        run.overrides = [
            "actor_rollout_ref.model.lora_rank=0",
            "trainer.n_gpus_per_node=2",
            f"trainer.total_training_steps={STEPS}",
            "trainer.save_freq=3",
            "trainer.test_freq=3",
            "trainer.val_before_train=false",
            f"trainer.validation_data_dir={folder / 'validations'}",
            "data.val_max_samples=12",
            "data.train_max_samples=24",  # exactly one epoch
            "judge.max_attempts=1",
            "judge.max_reasks=0",
            "judge.timeout_s=6",  # a worker may lose the processor for seconds while the engines start
            "judge.max_failure_rate=0.9",
            "run.max_invalid_share=0.9",
        ]
        started(run, "at the end of the validation")
        run.until(lambda: _kept_a_live_session(run), 420, "a session of the first steps")
        assert wait_for_point(run), run.tail()
        assert kill(run, "all processes") == []
        shutil.copytree(run.dir / "traces", folder / "first_try")
        # Step 3 is published with the metrics of its training; those of its validation are lost with the process.
        assert run.tracked_step() == 3 and list(run.metrics()) == [1, 2, 3]
        assert "timing_s/step" in run.metrics()[3] and "val/hitom/n" not in run.metrics()[3]
        started(run)
        assert run.wait(420) == 0, run.tail()
        yield run


def _kept_a_live_session(run: Run) -> bool:
    """Copy the first session that a running step has left, before the step's end removes it."""
    for path in (run.dir / "traces" / "live").glob("*.jsonl"):
        with suppress(FileNotFoundError):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            if lines and lines[0].endswith("\n"):
                (run.folder / "live.jsonl").write_text(lines[0])
                return True
    return False


def test_every_session_of_every_step_left_a_trace(run: Run) -> None:
    for step in range(1, STEPS + 1):
        traces = run.traces(f"step_{step:06d}")
        assert len(traces) == PROMPTS * N
        assert len({t["session"] for t in traces}) == PROMPTS * N
        assert set(Counter(t["row"] for t in traces).values()) == {N}
        assert {t["model_version"] for t in traces} == {step - 1}


def test_a_kill_in_a_validation_loses_neither_its_step_nor_its_numbers(run: Run) -> None:
    assert f"Resuming from {run.dir / 'global_step_3'}" in run.log.read_text(errors="replace")
    lines = run.metrics()
    assert list(lines) == list(range(1, STEPS + 1))
    assert {"val/hitom/n", "timing_s/testing", "timing_s/step"} <= set(lines[3]) & set(lines[6])
    for step in (3, 6):
        assert len(run.traces(f"val_{step:06d}")) == 12
        manifest.check(run.dir / f"global_step_{step}")
    assert not (run.dir / "replaced").exists()


def test_the_sample_order_is_that_of_an_uninterrupted_run(run: Run) -> None:
    rows = [sorted({t["row"] for t in run.traces(f"step_{step:06d}")}) for step in range(1, STEPS + 1)]
    assert sorted(row for step in rows for row in step) == list(range(24))  # one epoch: each row once
    for path in sorted((run.folder / "first_try").glob("step_*.jsonl")):
        before = [json.loads(line) for line in path.read_text().splitlines()]
        assert {t["row"] for t in run.traces(path.stem)} == {t["row"] for t in before}


def test_judge_failures_are_masked_and_counted(run: Run) -> None:
    traces = [t for step in range(1, STEPS + 1) for t in run.traces(f"step_{step:06d}")]
    failed = [t for t in traces if t["feedback_failure"]]
    assert 0.05 < len(failed) / len(traces) < 0.45
    assert all(t["refined"] is None and set(t["advantages"]) == {"draft"} for t in failed)
    known = {"empty", "refusal", "invalid", "server_error", "rate_limit", "timeout", "connection"}
    assert {t["feedback_failure"]["cause"] for t in failed} <= known
    for step, numbers in run.metrics().items():
        if step == 0:
            continue
        of_step = run.traces(f"step_{step:06d}")
        lost = [t for t in of_step if t["feedback_failure"]]
        assert numbers["judge/failure_share"] == pytest.approx(len(lost) / len(of_step))
        for cause, count in Counter(t["feedback_failure"]["cause"] for t in lost).items():
            assert numbers[f"ditto/invalid/feedback/{cause}"] == pytest.approx(count / len(of_step))


def test_the_metrics_are_a_recount_of_the_traces(run: Run) -> None:
    for step, numbers in run.metrics().items():
        assert not undocumented(numbers)
        if step == 0:
            continue
        traces = run.traces(f"step_{step:06d}")
        drafts = [t["draft"]["reward"] for t in traces]
        refined = [t["refined"]["reward"] for t in traces if t["refined"]]
        assert numbers["ditto/reward_draft"] == pytest.approx(sum(drafts) / len(drafts))
        assert numbers["ditto/share_refined"] == pytest.approx(len(refined) / len(traces))
        if refined:
            assert numbers["ditto/reward_refined"] == pytest.approx(sum(refined) / len(refined))
        assert numbers["ditto/sequences"] == len(drafts) + 2 * len(refined)
        assert numbers["actor/updates"] == 2  # whatever was refined
        assert 0 < numbers["ditto/response_tokens_draft"] <= 32
        assert numbers["judge/calls"] == sum(u["calls"] for t in traces for u in t["usage"].values())


def test_the_parts_of_the_rollout_add_up_to_it_and_its_speed_is_that_of_the_traces(run: Run) -> None:
    for step in range(1, STEPS + 1):
        numbers, sequences = run.metrics()[step], [s for t in run.traces(f"step_{step:06d}") for s in t["sequences"]]
        parts = [numbers[f"timing_s/rollout_{name}"] for name in ("sampling", "judging", "waiting")]
        assert min(parts) >= 0 and sum(parts) == pytest.approx(numbers["timing_s/gen"], abs=1e-3)
        once = [each for each in sequences if each["kind"] != "refined_feedback"]  # has the turns of refined_base
        edges = sorted(
            edge for s in once for start, took in s["turn_times"] for edge in ((start, 1), (start + took, -1))
        )
        seconds, sampling = 0.0, 0
        for (moment, change), (following, _) in pairwise(edges):
            sampling += change
            seconds += following - moment if sampling else 0.0
        assert 0 < seconds == pytest.approx(parts[0], rel=0.05)
        tokens = sum(each["response_tokens"] for each in once)
        assert numbers["perf/rollout_tokens_per_s"] * seconds == pytest.approx(tokens, rel=1e-3)


def test_the_advantages_are_those_of_the_equations(run: Run) -> None:
    for step in range(1, STEPS + 1):
        traces = run.traces(f"step_{step:06d}")
        for row in {t["row"] for t in traces}:
            group = [t for t in traces if t["row"] == row]
            refined = [t for t in group if t["refined"]]
            joint = [t["draft"]["reward"] for t in group] + [t["refined"]["reward"] for t in refined]
            for t in group:
                assert t["advantages"]["draft"] == pytest.approx(_advantage(t["draft"]["reward"], joint), abs=1e-9)
            for t in refined:
                reward = t["refined"]["reward"]
                alone = [u["refined"]["reward"] for u in refined]
                assert t["advantages"]["refined_base"] == pytest.approx(_advantage(reward, joint), abs=1e-9)
                assert t["advantages"]["refined_feedback"] == pytest.approx(_advantage(reward, alone), abs=1e-9)


def _advantage(reward: float, group: list[float]) -> float:
    if len(group) < 2 or len(set(group)) == 1:
        return 0.0
    return (reward - statistics.fmean(group)) / (statistics.stdev(group) + 1e-6)


def test_the_traces_say_what_was_trained(run: Run) -> None:
    """Tokens are recounted with the tokenizer, advantages with the metrics of what the loss got."""
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    metrics = run.metrics()
    for step in range(1, STEPS + 1):
        traces, numbers = [SessionRecord.model_validate(t) for t in run.traces(f"step_{step:06d}")], metrics[step]
        drafts, gaps, advantages = [], [], [0.0]
        for trace in traces:
            assert [each.kind for each in trace.sequences] == list(KINDS if trace.refined else KINDS[:1])
            for each in trace.sequences:
                attempt = trace.draft if each.kind == "draft" else trace.refined
                assert attempt is not None and attempt.seats is not None and each.seat == "policy"
                opening = (attempt.base or {}).get("policy", []) if each.kind == "refined_base" else []
                opening = opening or attempt.seats["policy"][:-1]
                ids = tokenizer.apply_chat_template(opening, add_generation_prompt=True, return_dict=False)
                assert each.prompt_tokens == len(ids) and 0 < each.response_tokens <= 32
                assert each.advantage == trace.advantages[each.kind] and each.weight is not None and each.weight > 0
                assert each.masked in (None, "zero spread", "zero advantage")
                assert (each.masked is None) == (each.advantage != 0)
                advantages.append(each.advantage)
                assert each.logp_sampled is not None and -20 < each.logp_sampled < 0
                assert each.masked or each.kind == "refined_feedback" or each.logp_base is not None
                if each.kind == "refined_base" and each.logp_base is not None:
                    gaps.append((each.logp_sampled - each.logp_base) * each.response_tokens)
                if each.kind == "draft":
                    drafts.append(each.response_tokens)
                    # As probabilities, see below; here a mean over at most 32 tokens of which some may be unlikely.
                    assert each.logp_base is None or abs(each.logp_sampled - each.logp_base) < 0.1
        assert numbers["ditto/response_tokens_draft"] == pytest.approx(statistics.fmean(drafts))
        assert numbers["critic/advantages/max"] == pytest.approx(max(advantages), abs=1e-6)
        assert numbers["critic/advantages/min"] == pytest.approx(min(advantages), abs=1e-6)
        if gaps:
            assert numbers["ditto/context_logprob_gap"] == pytest.approx(statistics.fmean(gaps), abs=1e-4)
    for validated in run.traces(f"val_{STEPS:06d}"):
        assert [each["masked"] for each in validated["sequences"]] == ["validation"]


def test_a_session_is_readable_while_its_step_runs(run: Run) -> None:
    (line,) = read_records(run.folder / "live.jsonl")
    live = line.record
    final = [SessionRecord.model_validate(t) for t in run.traces(f"step_{live.step:06d}")]
    assert live.session.split("_")[0] and live.row in {trace.row for trace in final}
    assert live.sequences and all(each.advantage is None and each.weight is None for each in live.sequences)
    assert not (run.dir / "traces" / "live").exists()  # nothing is left of it


def test_run_json_says_what_the_run_is(run: Run) -> None:
    content = json.loads((run.dir / "run.json").read_text())
    assert (content["objective"], content["task"], content["hosts"]) == ("ditto", "hitom", 1)
    assert [each["step"] for each in content["resumed"]] == [3]
    assert content["started"] < content["resumed"][0]["time"] <= time.time()
    assert content["config"]["data"]["train_batch_size"] == PROMPTS and content["seed"] == 1
    assert {"verl", "torch", "vllm", "ray", "transformers"} <= content["versions"].keys()
    assert [(card["split"], card["file"]) for card in content["data_cards"]] == [
        ("train", str(run.train)),
        ("val", str(run.val)),
    ]


def test_actor_and_rollout_agree_on_what_was_sampled(run: Run) -> None:
    # Compared as probabilities: at this learning rate the policy may become almost random, and then the log-probs of
    # unlikely tokens differ by up to 0.012 on average. After a lost sync, probabilities differ by 0.2 and more.
    steps = [numbers for step, numbers in run.metrics().items() if step > 0]
    assert len(steps) == STEPS and max(m["training/rollout_probs_diff_mean"] for m in steps) < 1e-2
    assert max(m["training/rollout_probs_diff_max"] for m in steps) < 0.1


def test_generation_follows_the_trained_weights(run: Run) -> None:
    """Validation of the last step ran after the last weight sync: its greedy answers are the saved checkpoint's."""
    traces = run.traces(f"val_{STEPS:06d}")
    prompts = [t["draft"]["seats"]["policy"][0]["content"] for t in traces]
    in_vllm = [t["draft"]["seats"]["policy"][-1]["content"] for t in traces]
    in_transformers = greedy_answers(run.dir / f"global_step_{STEPS}", prompts, 32)
    assert in_vllm == in_transformers
    assert all(t["feedback"] is None and t["refined"] is None for t in traces)


def test_verls_own_dump_of_a_validation_is_written(run: Run) -> None:
    dumped = [json.loads(line) for line in (run.folder / "validations" / f"{STEPS}.jsonl").read_text().splitlines()]
    rewards = [trace["draft"]["reward"] for trace in run.traces(f"val_{STEPS:06d}")]
    assert sorted(line["score"] for line in dumped) == pytest.approx(sorted(rewards), abs=1e-6)


def test_devices_that_cannot_share_a_batch_evenly_end_before_anything_starts(run: Run) -> None:
    run.start("trainer.n_gpus_per_node=3")
    assert run.wait(120) == 2, run.tail()
    paragraph = run.tail()
    assert "rollout.n=2 sessions cannot be divided evenly among the 3 devices" in paragraph, paragraph
    assert "Traceback" not in paragraph


def test_no_artefact_holds_the_key(run: Run) -> None:
    for path in run.folder.rglob("*"):
        if path.is_file():
            assert SENTINEL_KEY.encode() not in path.read_bytes(), path


def test_no_process_is_left_behind(run: Run) -> None:
    deadline = time.monotonic() + 30
    while run.descendants() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [p.name() for p in run.descendants()] == []
