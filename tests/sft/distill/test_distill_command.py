"""`python -m sft.distill` over real HTTP: one-turn tasks, dialogues and scenes, from experts to parquet files."""

import json
import re
from collections import Counter
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from data.rows import write_rows
from sft.distill.__main__ import main
from soul import examples
from soul.examples.command import write
from soul.tasks import launch
from soul.testing import FakeOpenAI, ServerError, Text
from tests.sft.distill.stand_in_expert import Experts


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch):
    for name in ("TRAIN_FILES", "DATA_DIR", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)


class CutOff(Text):
    """A right answer that hit the token limit."""

    def answer(self, request):
        whole = super().answer(request)
        return replace(whole, body=whole.body.replace(b'"stop"', b'"length"'))


def train_file(data, task, rows=6):
    path = data / "sim_rl_data" / f"{launch(task).train}.parquet"
    write([task], rows, path)
    return path


def words(fake, *tasks, expert="expert-a"):
    named = [f"{task}=endpoint:{expert}@{fake.url}" for task in tasks]
    return [*named, f"judge.base_url={fake.url}", "judge.api_key_env=none", "judge.max_attempts=1"]


def distil(tmp_path, *more, code=0):
    assert main(["--out", str(tmp_path / "out"), "--data", str(tmp_path / "data"), "--val-share", "0", *more]) == code
    return tmp_path / "out"


def rows_of(out, name="train.parquet"):
    return pq.read_table(out / name).to_pylist()


def journal(out):
    return [json.loads(line) for path in (out / "samples").glob("*/samples.jsonl") for line in path.open()]


def report_of(out, task):
    return json.loads((out / "distill.json").read_text())["tasks"][task]


def test_a_row_keeps_the_expert_s_right_answer_and_says_where_it_is_from(tmp_path):
    file = train_file(tmp_path / "data", "hitom")
    experts = Experts("hitom")
    with FakeOpenAI(experts) as fake:
        out = distil(tmp_path, *words(fake, "hitom"), "--n", "6")
        url = fake.url
    samples = journal(out)
    assert len(samples) == 36 and len({seed for _, seed in experts.asked}) == 36
    solved = {sample["number"] for sample in samples if sample["draft"]["reward"] == 1}
    rows = rows_of(out)
    assert {row["row"] for row in rows} == solved and len(rows) == len(solved) > 2
    for row in rows:
        (sample,) = [s for s in samples if (s["number"], s["sample"]) == (row["row"], row["sample"])]
        assert row["messages"] == sample["draft"]["seats"]["policy"] and row["messages"][-1]["role"] == "assistant"
        assert row["reward"] == 1 and json.loads(row["metrics"])["accuracy"] == 1
        assert (row["data_source"], row["task"], row["train_role"]) == ("hitom", "hitom", "assistant")
        assert row["expert"] == f"endpoint:expert-a@{url}" and row["fingerprint"] == f"expert-a at {url}"
        assert row["judge"] is None and row["prompts"] == ["choice/critique_of_a_mind_reader.v3"]  # scored by rule
        assert row["file"] == str(file)
    found = report_of(out, "hitom")
    right = sum(sample["draft"]["reward"] for sample in samples)
    assert found["mean"] == pytest.approx(right / 36) and found["mean_kept"] == 1 and found["kept"] == len(rows)
    # The oracle always says the same: of a row's right answers all but one are duplicates.
    assert found["fates"] == {"kept": len(rows), "worst": 36 - right, "duplicate": right - len(rows)}


def test_a_rule_that_no_task_fits_is_refused_before_a_call(tmp_path, capsys):
    train_file(tmp_path / "data", "hitom")
    with FakeOpenAI(Experts("hitom")) as fake:
        distil(tmp_path, *words(fake, "hitom"), "--threshold", "hitm=1", code=2)
        assert "'hitm'" in capsys.readouterr().err
        assert not fake.requests


def test_a_dry_run_prints_the_plan_and_neither_samples_nor_writes(tmp_path, capsys):
    for task in ("hitom", "sotopia"):
        train_file(tmp_path / "data", task)
    with FakeOpenAI(Experts("hitom", "sotopia")) as fake:
        out = distil(tmp_path, *words(fake, "hitom", "sotopia"), "--n", "4", "--dry-run")
        assert all("connection test" in r.text or "Say hello" in r.text for r in fake.requests)
        assert {request.body["model"] for request in fake.requests} == {"expert-a", "gpt-5-nano"}
    assert not out.exists()
    printed = capsys.readouterr().out
    assert "expert-a on 2 sets" in printed and "48 samples to run" in printed


def test_every_seat_of_dialogue_and_scene_is_a_row_as_the_seat_saw_it(tmp_path):
    for task in ("sotopia", "coser"):
        train_file(tmp_path / "data", task)
    experts = Experts("sotopia", "coser")
    with FakeOpenAI(experts) as fake:
        out = distil(tmp_path, *words(fake, "sotopia", "coser"), "--n", "3")
    rows = rows_of(out)
    said = {json.dumps([*messages]) for messages, _ in experts.asked}
    for row in rows:
        assert row["messages"][-1]["role"] == "assistant"
        assert json.dumps(row["messages"][:-1]) in said, "what is trained is not what the policy was asked"
        assert row["judge"] == {"sotopia": "gpt-5-nano", "coser": "gpt-5.4"}[row["task"]]  # the paper's judges
    seats = Counter((row["task"], row["row"]) for row in rows)
    assert {count for (task, _), count in seats.items() if task == "sotopia"} == {1}
    assert {count for (task, _), count in seats.items() if task == "coser"} == {2}
    for task in ("sotopia", "coser"):
        found = report_of(out, task)
        assert found["mean_kept"] > found["mean"] and 0 < found["rows_kept"] == found["kept"]
        best = {}
        for sample in journal(out):
            if sample["set"] == task:
                best.setdefault(sample["number"], []).append(sample["draft"]["reward"])
        kept = {row["row"]: row["reward"] for row in rows if row["task"] == task}
        assert kept.items() <= {number: max(rewards) for number, rewards in best.items()}.items()
        assert len(kept) == found["kept"]


def test_what_failed_was_cut_off_or_says_nothing_is_counted_and_never_kept(tmp_path, capsys):
    train_file(tmp_path / "data", "hitom", rows=8)
    experts = Experts("hitom", rows=8, good=lambda seed: True)

    def script(request):
        reply = experts(request)
        if request.body["model"] != "expert-a" or "Story:" not in request.text:
            return reply
        kind = request.body["seed"] % 4
        if kind == 0:
            return ServerError(status=500)
        return CutOff(reply.content) if kind == 1 else Text(" ") if kind == 2 else reply

    with FakeOpenAI(script) as fake:
        out = distil(tmp_path, *words(fake, "hitom"), "policy.max_attempts=1", "--n", "4", "--per-row", "0", code=1)
    assert not (out / "train.parquet").exists(), "a student of what is left would look like one of all tasks"
    error = capsys.readouterr().err
    assert "LostTask: hitom: " in error and "--max-failed allows 20%" in error and "Last server_error: " in error
    distil(tmp_path, "--per-row", "0", "--max-failed", "1")
    kinds = Counter(seed % 4 for _, seed in experts.asked)
    fates = report_of(out, "hitom")["fates"]
    assert fates["failed: server_error"] == kinds[0] and fates["cut off"] == kinds[1]
    blank = sum(count for fate, count in fates.items() if fate.startswith("unusable") or fate == "contentless")
    assert blank == kinds[2] and fates["kept"] + fates.get("duplicate", 0) == kinds[3] > 0
    assert report_of(out, "hitom")["invalid"]["server_error"] == kinds[0]


@pytest.mark.parametrize("task, form", [("humanual", "</?response>"), ("sim_arena_doc", "^Message: ?")])
def test_an_answer_without_the_form_is_never_kept_whatever_its_reward(task, form, tmp_path):
    write([task], 6, tmp_path / "mine.parquet")
    experts = Experts(task, good=lambda seed: True)
    formless = []

    def script(request):
        reply = experts(request)
        if "seed" not in request.body or request.body["seed"] % 2:
            return reply
        said = re.sub(form, "", reply.content)
        formless.append(said != reply.content)
        return Text(said)

    with FakeOpenAI(script) as fake:
        out = distil(tmp_path, *words(fake, f"{task}:{tmp_path / 'mine.parquet'}"), "--n", "4", "--per-row", "0")
    samples = [sample["draft"] for sample in journal(out)]
    without = [draft for draft in samples if draft["metrics"]["answered"] < 1]
    assert any(formless) and max(draft["reward"] for draft in without) == max(draft["reward"] for draft in samples)
    (found,) = json.loads((out / "distill.json").read_text())["tasks"].values()
    assert found["fates"]["without the form"] == len(without) and found["kept"] > 0 and not found["invalid"]
    for row in rows_of(out):
        said = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert all(re.search(form, text) for text in said)


def test_another_threshold_asks_nobody_again(tmp_path):
    train_file(tmp_path / "data", "coser")
    with FakeOpenAI(Experts("coser")) as fake:
        out = distil(tmp_path, *words(fake, "coser"), "--n", "4")
        distil(tmp_path, *words(fake, "coser"), "--n", "2")
        assert report_of(out, "coser")["samples"] == 12  # what a smaller command asks for, and no more
        distil(tmp_path, *words(fake, "coser"), "--n", "4")
        asked = len(fake.requests)
        rewards = [sample["draft"]["reward"] for sample in journal(out)]
        worst, *_, least = sorted(set(rewards))
        distil(tmp_path, "--threshold", f"coser={least}", "--per-row", "0")
        assert len(fake.requests) == asked
    rows = rows_of(out)
    assert rows and {row["reward"] for row in rows} == {least}
    fates = report_of(out, "coser")["fates"]
    assert fates["worst"] == rewards.count(worst)
    assert fates["below threshold"] == sum(worst < reward < least for reward in rewards) > 0


def test_several_experts_of_one_task_and_a_row_is_in_one_file_only(tmp_path):
    write(["hitom"], 40, tmp_path / "mine.parquet")
    experts = Experts("hitom", rows=40, good=lambda seed: seed % 2, varied=True)
    chosen = ["--val-share", "0.3", "--seed", "5"]
    with FakeOpenAI(experts) as fake:
        mine = f"hitom:{tmp_path / 'mine.parquet'}"
        named = [f"{mine}=endpoint:expert-{letter}@{fake.url}" for letter in "ab"]
        out = distil(tmp_path, *words(fake), *named, "--n", "4", *chosen, "--per-row", "0")
    train, val = rows_of(out), rows_of(out, "val.parquet")
    held = {row["record"] for row in val}
    assert held.isdisjoint(row["record"] for row in train)
    assert len(train) > 40 and len(held) > 5 and {row["expert"][9:17] for row in train} == {"expert-a", "expert-b"}
    assert max(Counter(row["record"] for row in val).values()) > 1
    distil(tmp_path, *chosen)  # fewer rows: each stays in its file
    assert {row["record"] for row in rows_of(out, "val.parquet")} <= held
    distil(tmp_path, "--val-share", "0", "--seed", "5")
    assert not (out / "val.parquet").exists() and len(rows_of(out)) == report_of(out, "hitom")["rows_kept"]


def test_rows_of_an_evaluation_are_neither_sampled_nor_kept(tmp_path, capsys):
    train_file(tmp_path / "data", "hitom", rows=6)
    write(["hitom"], 2, tmp_path / "eval.parquet")  # the first two rows of the training file
    experts = Experts("hitom", good=lambda seed: True)
    with FakeOpenAI(experts) as fake:
        out = distil(tmp_path, *words(fake, "hitom"), "--n", "1", "--limit", "5")
        numbers = {sample["number"] for sample in journal(out)}
        assert {row["row"] for row in rows_of(out)} == numbers
        distil(tmp_path, "--not-in", str(tmp_path / "eval.parquet"))
        left = {row["row"] for row in rows_of(out)}
        assert left == numbers - {0, 1} and report_of(out, "hitom")["fates"].get("in an evaluation", 0) == 5 - len(left)
        before = len(experts.asked)
        again = tmp_path / "again"
        again.mkdir()
        (again / "data").symlink_to(tmp_path / "data")
        distil(again, *words(fake, "hitom"), "--n", "1", "--not-in", str(tmp_path / "eval.parquet"))
    assert len(experts.asked) - before == 4 and {row["row"] for row in rows_of(again / "out")} == {2, 3, 4, 5}
    assert "hitom: 2 rows are rows of an evaluation" in capsys.readouterr().out
    near = {"index": 0, **examples.load("hitom").record(2)}
    near["story"] = near["story"].replace(".", " ;").replace("moved", "carried", 1)
    write_rows(tmp_path / "near.parquet", "hitom", [near])
    (again / "out" / "train.parquet").unlink()
    distil(again, "--not-in", str(tmp_path / "near.parquet"))
    assert {row["row"] for row in rows_of(again / "out")} == {3, 4, 5}
    every_row = str(tmp_path / "data" / "sim_rl_data" / "*")
    with FakeOpenAI(experts) as fake:
        distil(again, *words(fake, "hitom"), "--n", "1", "--not-in", every_row, code=1)
    assert "hitom: none of its 0 samples exists, because all of its rows are rows of an eval" in capsys.readouterr().err


def test_a_sampling_without_any_verdict_says_the_cause_and_fails(tmp_path, capsys):
    train_file(tmp_path / "data", "humanual-opinion", rows=2)
    down = True

    def script(request):
        is_judge = not request.body["model"].startswith("expert")
        return (
            ServerError(status=500) if down and is_judge and "connection test" not in request.text else experts(request)
        )

    experts = Experts("humanual-opinion", rows=2)
    with FakeOpenAI(script) as fake:
        distil(tmp_path, *words(fake, "humanual-opinion"), "--n", "2", code=1)
        out, err = capsys.readouterr()
        assert "NoVerdict: All 4 samples failed (server_error 4)" in err and "the same command runs them again" in err
        assert "Distilled" not in out  # no table of nothing
        down = False
        distil(tmp_path, *words(fake, "humanual-opinion"), "--n", "2")
    assert "0 samples are finished, 4 to run" in capsys.readouterr().out
