"""`benchmarks.one_process` on a tiny model with random weights: what is sampled is what is trained, and repeats."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

# verl reads these while it is imported.
for name, value in {"VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
    os.environ.setdefault(name, value)

from benchmarks import learning  # noqa: E402
from benchmarks.one_process import OneProcess, started  # noqa: E402
from data.rows import write_rows  # noqa: E402
from ditto.batch.jagged import per_token  # noqa: E402
from ditto.settings import BadConfig  # noqa: E402
from recipe.demo import tiny_model  # noqa: E402
from soul import tasks  # noqa: E402
from soul.errors import BadSettings  # noqa: E402
from soul.judge import Judge  # noqa: E402
from soul.task_types import Episode, Metric, Verdict  # noqa: E402
from tests.e2e import three_turns  # noqa: E402
from tests.e2e.three_turns import PARTNER, TalkRow  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
STORY = [*PARTNER, "Hello. Where is the tomato?", "A coach says: look into the green red box.", "You talk about boxes."]


class Talk(three_turns.Talk):
    """The same conversation; the reward is the share of vowels, so random answers differ."""

    headline: ClassVar[Metric] = Metric("vowels")

    async def judge(self, row: TalkRow, episode: Episode, judge: Judge) -> Verdict:
        said = "".join(m["content"] for m in episode.seats["policy"] if m["role"] == "assistant").lower()
        share = sum(letter in "aeiou" for letter in said) / max(len(said), 1)
        return Verdict(share, {"vowels": share})

    async def feedback(self, row: TalkRow, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        return f"look into the {'green' if verdict.reward > 0.3 else 'red'} box."


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    for name, first, count in (("train", 0, 8), ("heldback", 100, 3)):
        topics = {i: f"boxes{' boxes' * (i % 5)} {i}" for i in range(first, first + count)}
        rows = [{"index": i, "question": "", "topic": topic} for i, topic in topics.items()]
        write_rows(folder / f"{name}.parquet", "talk", rows)
    tiny_model.build(folder / "warm", [*STORY, *"0123456789"])
    config = folder / "warm" / "generation_config.json"  # many tokens end a turn, so that there is room for more turns
    config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": list(range(2, 60))}))
    return folder


@pytest.fixture(autouse=True)
def talk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.CLASSES, "talk", f"{__name__}:Talk")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # restored after the test
        monkeypatch.setenv(name, "")


async def _two_steps(run: OneProcess) -> list[dict[str, float]]:
    assert run.update.as_trees == (run.settings.options.prefix_tree != "off" and not run.settings.distillation)
    steps = [await run.step(1), await run.step(2)]
    assert run.update.batch is not None and run.update.batch.columns is not None
    return [*steps, await run.evaluate(2)]


def _trained(world: Path, folder: Path, *overrides: str) -> tuple[list[dict[str, float]], Any]:
    """Metrics of two steps and of an evaluation, and the last step's batch."""
    words = [
        *("--config-dir", str(ROOT / "recipe" / "demo"), "--config-name", "demo", "platform=cpu"),
        *(f"data.train_files=[{world / 'train.parquet'}]", f"data.val_files=[{world / 'heldback.parquet'}]"),
        *(f"actor_rollout_ref.model.path={world / 'warm'}", f"run.dir={folder}", "data.train_batch_size=4"),
        *("actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=3"),
        *("trainer.total_training_steps=2", *overrides),
    ]

    async def both() -> tuple[list[dict[str, float]], Any]:
        async with started(words) as run:
            return await _two_steps(run), run.update.batch

    return asyncio.run(both())


def _of_the_run(metrics: list[dict[str, float]]) -> list[dict[str, float]]:
    """Without times and memory."""
    kept = ("ditto/", "heldback/", "actor/grad_norm", "actor/entropy", "actor/part", "actor/pg_loss")
    return [{name: value for name, value in step.items() if name.startswith(kept)} for step in metrics]


def test_sampled_log_probs_are_those_of_the_worker_and_a_run_repeats(world: Path, tmp_path: Path) -> None:
    metrics, batch = _trained(world, tmp_path / "first", "algorithm.objective=ditto")
    columns = batch.columns
    sampled, same = columns.mask.values().bool(), per_token(batch.is_kind("draft", "refined_feedback"), columns.mask)
    assert any(0 in row[: row.nonzero().max()] for row in columns.mask.unbind() if row.any()), "a partner spoke between"
    difference = (columns.old_log_probs.values() - columns.rollout_log_probs.values()).abs()
    assert difference[sampled & same].max() < 1e-4
    assert difference[sampled & ~same].max() > 1e-3, "refined answers are trained in another context"
    assert metrics[1]["actor/grad_norm"] > 0

    again, _ = _trained(world, tmp_path / "second", "algorithm.objective=ditto")
    for ours, theirs in zip(_of_the_run(metrics), _of_the_run(again), strict=True):
        assert ours and ours == pytest.approx(theirs)


def test_the_one_update_of_a_step_tells_what_a_pass_before_it_tells(world: Path, tmp_path: Path) -> None:
    words = ("algorithm.objective=ditto", "actor_rollout_ref.actor.ppo_mini_batch_size=4")
    (auto, *_), batch = _trained(world, tmp_path / "auto", *words)
    (passed, *_), other = _trained(world, tmp_path / "passed", *words, "algorithm.old_logp=recompute")
    assert batch.measured is not None and other.measured is None
    names = _of_the_run([passed])[0].keys() | {"training/rollout_logprob_diff_mean", "ditto/context_logprob_gap"}
    assert {name: auto[name] for name in names} == pytest.approx(
        {name: passed[name] for name in names}, rel=1e-4, abs=1e-5
    )


def test_the_updates_are_trees_and_equal_those_of_every_row(world: Path, tmp_path: Path) -> None:
    trees, _ = _trained(world, tmp_path / "trees", "algorithm.objective=ditto")
    rows, _ = _trained(world, tmp_path / "rows", "algorithm.objective=ditto", "algorithm.prefix_tree=off")
    for ours, theirs in zip(_of_the_run(trees), _of_the_run(rows), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("word", "names"),
    [("algorithm.filter_groups.enable=true", "filter_groups"), ("trainer.v1.trainer_mode=ditto_colocate_async", "Ray")],
)
def test_an_option_that_one_process_would_ignore_is_refused(world: Path, tmp_path: Path, word: str, names: str) -> None:
    with pytest.raises(BadConfig, match=names):
        _trained(world, tmp_path, word)


def test_a_teacher_is_asked(world: Path, tmp_path: Path) -> None:
    metrics, _ = _trained(world, tmp_path, "algorithm.objective=sdpo_logits")
    assert [step["ditto/share_taught"] for step in metrics[:2]] == [1.0, 1.0]
    assert all(step["actor/grad_norm"] > 0 for step in metrics[:2])


def test_arms_with_commas_are_separated_by_semicolons() -> None:
    assert learning._arms("grpo,ditto") == learning._arms("grpo; ditto") == ["grpo", "ditto"]
    assert learning._arms("ditto, colocate async;") == ["ditto, colocate async"]
    with pytest.raises(BadSettings, match="colocate async'"):
        learning._arms("ditto, colocate async")


FAKE_TRAINER = """
import json, pathlib, sys
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
counter = pathlib.Path("COUNTER")
counter.write_text(counter.read_text() + words["data.seed"])
if words["data.seed"] == "2" and counter.read_text().count("2") == 1:
    sys.exit("no memory left")
folder = pathlib.Path(words["run.dir"])
folder.mkdir(parents=True)
step = {"step": 1, "ditto/reward_draft": 0.5, "ditto/share_refined": 0.0, "ditto/sessions": 8, "actor/grad_norm": 0.1}
step |= {"ditto/response_tokens_draft": 10, "actor/entropy": 1, "timing_s/step": 2, "ditto/secondary/hitom/exact": 0.4}
end = {"heldback/sampled": 0.6, "heldback/greedy": 0.7}
lines = [step, step | end | {"step": 2}]
(folder / "metrics.jsonl").write_text("".join(json.dumps(line) + chr(10) for line in lines))
"""


def test_a_finished_run_is_not_repeated_and_a_failed_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counter, script = tmp_path / "counter", tmp_path / "trainer.py"
    counter.write_text("")
    script.write_text(FAKE_TRAINER.replace("COUNTER", str(counter)))
    monkeypatch.setitem(learning.HOW, "one_process", [sys.executable, str(script)])
    for seed in ("1", "2"):  # prepared worlds: a warm start takes a minute
        world = tmp_path / "worlds" / "usual" / seed
        (world / "warm").mkdir(parents=True)
        (world / "warm" / "model.safetensors").write_bytes(seed.encode())
        (world / "done").touch()
    arguments = ["run", "--folder", str(tmp_path), "--arms", "grpo", "--seeds", "2", "--at-a-time", "1"]

    assert learning.main(arguments) == 1
    assert "usual-hitom-grpo-2-15_steps-one_process FAILED" in capsys.readouterr().out
    assert learning.main(arguments) == 0
    assert counter.read_text() == "122"
    first, second = learning.results(tmp_path)
    assert (first.seed, second.seed, second.how) == (1, 2, "one_process")
    assert (second.tokens, second.sampled, second.greedy) == ([80.0, 160.0], 0.6, 0.7)
    assert second.heldback == [[2, 0.6, 0.7]] and second.secondary == {
        "ditto/secondary/hitom/exact": [0.4, 0.4],
        "ditto/response_tokens_draft": [10, 10],
    }
