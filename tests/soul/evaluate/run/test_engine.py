"""Evaluating over real HTTP: every sample once, whatever happens in between; the same rows for every model."""

import asyncio
import json
import os
import re
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from soul import examples
from soul.errors import BadSettings
from soul.evaluate.outputs import write_outputs
from soul.evaluate.run import engine
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.run_folder import EvaluationRun, write_choice
from soul.evaluate.run.settings import (
    EvaluationSettings,
    choose_sets,
    find_sets,
    how_to_build,
    sample_requests,
    stand_ins_of,
)
from soul.evaluate.runner import missing_samples
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.judge import GatewaySettings
from soul.rows.data_card import SetCard, write_inside
from soul.suites.soul_v1 import SETS as SETS_OF_SOUL
from soul.testing import FakeOpenAI, Text, Unauthorized
from tests.killed import killed_and_finished
from tests.soul.pages.exported import Exported

ROOT = Path(__file__).resolve().parents[4]
SETS = ("hitom", "sotopia")


@pytest.fixture
def data(tmp_path):
    return write_sets(tmp_path / "data")


def write_sets(folder, rows=12):
    for name in SETS:
        write([name], rows, file_of(folder, name))
    return folder


def file_of(folder, name):
    return folder / "sim_eval_data" / f"{SETS_OF_SOUL[name].file}.parquet"


def settings_of(url, data, **changes):
    endpoint = {"base_url": url, "api_key_env": "none", "structured": "json_schema", "max_attempts": 1}
    gateway = GatewaySettings.from_sections({"judge": endpoint})
    policy = gateway.judge.model_copy(update={"model": "under-test", "concurrency": 8})
    return EvaluationSettings(policy=policy, gateway=gateway, sets=choose_sets(list(SETS), data), **changes)


def policy_or_judge(request):
    """The model under test plays as the oracle of hitom would not: it always says B, or leaves."""
    if request.body["model"] != "under-test":
        return answer(request)
    return Text('{"action_type": "leave", "argument": ""}' if len(request.messages) > 1 else "<answer>B</answer>")


def started(settings, folder):
    """All samples after one start of the run, and those that it took."""
    seen = []
    with closing(Journal(folder)) as journal:
        todo = missing_samples(sample_requests(settings), journal.samples, False)
        asyncio.run(engine.evaluate(settings, todo, journal, seen.append))
    return list(journal.samples.values()), seen


def evaluated(fake, data, folder, **changes):
    return started(settings_of(fake.url, data, **changes), folder)


def test_every_sample_is_taken_once_and_scored_by_its_task(data, tmp_path):
    with FakeOpenAI(policy_or_judge) as fake:
        samples, seen = evaluated(fake, data, tmp_path / "run", n=2)
        played = [r for r in fake.requests if r.body["model"] == "under-test"]
    assert len(samples) == len(seen) == 48 and not fake.errors
    example = examples.load("hitom")
    for sample in samples:
        if sample.set == "hitom":
            gold = example.player("oracle", example.row(sample.number))([])
            assert sample.draft.reward == float("<answer>B</answer>" in gold)
        assert sample.draft.valid and sample.usage["policy"].requests >= 1
    assert sum(sample.usage["policy"].requests for sample in samples) == len(played)


def test_two_samples_of_every_set_come_first_and_then_the_longest(data):
    requests = sample_requests(settings_of("http://127.0.0.1:1/v1", data))
    order = engine.in_order(requests)
    assert sorted(order, key=requests.index) == requests
    assert [request.set for request in order] == ["sotopia"] * 2 + ["hitom"] * 2 + ["sotopia"] * 10 + ["hitom"] * 10
    for name in SETS:
        assert [one for one in order if one.set == name] == [one for one in requests if one.set == name]


def test_a_rerun_takes_what_is_missing_and_nothing_else(data, tmp_path):
    with FakeOpenAI(policy_or_judge) as fake:
        first, _ = evaluated(fake, data, tmp_path / "run", limit=3)
        before = len(fake.requests)
        again, seen = evaluated(fake, data, tmp_path / "run", limit=3)
        assert (again, seen) == (first, []) and len(fake.requests) == before
        more, seen = evaluated(fake, data, tmp_path / "run", limit=5)
    assert len(more) == 10 and len(seen) == 4 and first == more[:6]


def test_a_refused_key_stops_the_run_and_keeps_what_is_there(data, tmp_path):
    def script(request):
        return Unauthorized() if request.number > 30 else policy_or_judge(request)

    with FakeOpenAI(script) as fake, pytest.raises(engine.Stopped, match="Run the same command to continue"):
        evaluated(fake, data, tmp_path / "run")
    journal = Journal(tmp_path / "run")
    assert any(sample.draft.valid for sample in journal.samples.values())
    assert {sample.draft.cause for sample in journal.samples.values()} == {None, "auth"}  # those under way are saved
    journal.close()
    with FakeOpenAI(policy_or_judge) as fake:  # and run again, with the others, once the key is right
        samples, _ = evaluated(fake, data, tmp_path / "run")
    assert len(samples) == 24 and all(sample.draft.valid for sample in samples)


def test_what_the_model_cuts_off_or_refuses_is_judged_as_it_is(data, tmp_path):
    from soul.testing import Empty, Refusal, Truncated

    for reply in (Truncated(), Refusal(), Empty()):
        with FakeOpenAI(lambda r, reply=reply: reply if "Story:" in r.text else policy_or_judge(r)) as fake:
            samples, _ = evaluated(fake, data, tmp_path / type(reply).__name__, limit=2)
        assert len(samples) == 4 and all(sample.draft.valid for sample in samples), reply


DOLLARS_A_TOKEN = 1e-3


def start_with_budget(fake, data, folder, budget, limit=None):
    """One start of an evaluation whose judge, partner and environment have a price."""
    base = settings_of(fake.url, data, limit=limit)
    judge = {**base.gateway.judge.model_dump(exclude_none=True), "api_key_env": "none"}
    price = DOLLARS_A_TOKEN * 1e6
    priced = {"price_in": price, "price_out": price, "budget_usd": budget}
    gateway = GatewaySettings.from_sections({"judge": {**judge, **priced}})
    started(base.model_copy(update={"gateway": gateway}), folder)


def paid_usd(folder):
    journal = Journal(folder)
    journal.close()
    return journal.paid_usd


def test_a_budget_counts_the_sessions_that_its_end_cut_short(data, tmp_path):
    write_sets(data, rows=40)
    billed = []

    def script(request):
        reply = policy_or_judge(request)
        if request.body["model"] != "under-test":
            usage = json.loads(reply.answer(request).body)["usage"]
            billed.append(DOLLARS_A_TOKEN * (usage["prompt_tokens"] + usage["completion_tokens"]))
        return replace(reply, delay=0.05)

    with FakeOpenAI(script) as fake:
        for start in range(3):
            with pytest.raises(engine.Stopped, match="are spent"):
                start_with_budget(fake, data, tmp_path / "run", budget=2.0)
            if start == 0:
                asked = len(billed)
            assert paid_usd(tmp_path / "run") == pytest.approx(sum(billed)) and len(billed) == asked


def test_a_changed_model_judge_or_option_is_another_run(data, tmp_path):
    base = settings_of("http://127.0.0.1:1/v1", data)
    other = base.gateway.judge.model_copy(update={"model": "other"})
    changes = [
        {"policy": base.policy.model_copy(update={"temperature": 0.5})},
        {"gateway": base.gateway.model_copy(update={"roles": {**base.gateway.roles, "judge": other}})},
        {"tasks": {"mirrorbench": {"assistant": "model"}}},
        {"policy": base.policy.model_copy(update={"base_url": "http://127.0.0.1:2/v1"})},
    ]
    folders = {base.model_copy(update=change).folder(tmp_path, "x") for change in [{}, *changes]}
    assert len(folders) == 5
    same = [{"limit": 3}, {"n": 4}, {"seed": 9}, {"policy": base.policy.model_copy(update={"concurrency": 99})}]
    assert {base.model_copy(update=change).folder(tmp_path, "x") for change in same} <= folders
    assert "sk-" not in json.dumps(base.identity())


def test_sets_without_a_file_are_left_out_where_that_is_allowed(data):
    found, missing = find_sets(["hitom", "coser", "alignx_ugc"], data)
    assert list(found) == ["hitom"] and list(missing) == ["coser", "alignx_ugc"]
    (coser, alignx) = how_to_build(missing)
    assert str(data / "sim_eval_data" / "coser_val.parquet") in coser and "docs/tasks/coser.md" in coser
    assert all(
        (ROOT / line.partition("build it: ")[2].rstrip(")")).is_file()
        for line in how_to_build(find_sets([], data).missing)
    )
    with pytest.raises(BadSettings, match="coser: no "):
        choose_sets(["hitom", "coser"], data)  # whoever needs all of them


def test_kill_9_at_any_moment_loses_nothing_and_asks_nothing_twice(data, tmp_path):
    """Killed three times on its way; in the end the journal holds every sample once, and no sample was taken twice."""
    write_sets(data, rows=40)

    def slow(request):
        reply = policy_or_judge(request)
        return Text(reply.content, delay=0.03) if isinstance(reply, Text) else reply

    with FakeOpenAI(slow) as fake:
        words = ["hitom", "policy.model=under-test", f"policy.base_url={fake.url}", "policy.concurrency=1"]
        words += [f"judge.base_url={fake.url}", "judge.api_key_env=none", "--data", str(data), "--out", str(tmp_path)]
        command = [sys.executable, "-m", "soul", "evaluate", *words]
        killed_and_finished(command, tmp_path, "*/samples.jsonl", at=(5, 15, 25))
        stories = [r.text for r in fake.requests if "Story:" in r.text]
    (path,) = tmp_path.glob("*/samples.jsonl")
    keys = [(line["set"], line["number"], line["sample"]) for line in map(json.loads, path.open())]
    assert len(keys) == len(set(keys)) == 40
    assert len(stories) <= 40 + 3 * 2  # what was under way when it was killed: two sessions a slot
    assert os.path.exists(path.parent / "results.json") and "hitom" in (path.parent / "table.md").read_text()


def test_table_and_report_of_a_run_mark_a_set_whose_file_says_that_it_stands_in_for_others(data, tmp_path):
    facts = {"sources": [], "where": "", "builder": "", "left_out": {}, "notes": []}
    write_inside(
        file_of(data, "hitom"), SetCard(task="hitom", rows=12, stands_in="Lo-ToM stands in for Hi-ToM", **facts)
    )
    files = choose_sets(list(SETS), data)
    settings = settings_of("http://127.0.0.1:1/v1", data, stand_ins=stand_ins_of(files))
    folder = tmp_path / "run"
    Journal(folder).close()
    write_choice(folder, settings, sample_requests(settings))
    run = EvaluationRun.load(folder)
    assert run.stand_ins == {"hitom": "Lo-ToM stands in for Hi-ToM", "sotopia": "invented rows"}  # by `soul examples`
    write_outputs(run)
    for text in ((folder / "table.md").read_text(), json.dumps(Exported(folder / "report.html").overview())):
        assert "Other rows than the paper" in text and "Lo-ToM stands in for Hi-ToM" in text
    assert re.search(r"\| hitom \| - \* \|.*\|  \|", (folder / "table.md").read_text())
