"""samples.parquet holds everything of a run, typed, whatever the texts are.

Promise under test: what the journal says of a sample can be read back from its row, text by text; what failed has no
number; one schema for all tasks; a run of many batches is the run of one.
"""

import json
import math

import pandas as pd
import pyarrow.parquet as pq
import pytest

from soul.evaluate.tables.samples_table import write_parquet
from tests.soul.evaluate.finished_run import finished_run, real_run
from tests.soul.evaluate.finished_samples import sample, usage

HALF = "half \ud83d of a pair"


def written(run, tmp_path):
    write_parquet(run, tmp_path / "samples.parquet")
    return pq.read_table(tmp_path / "samples.parquet").to_pylist(maps_as_pydicts="strict")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return real_run(tmp_path_factory.mktemp("real"))


def test_every_line_of_a_real_run_can_be_read_back(real, tmp_path):
    rows = written(real, tmp_path)
    assert len(rows) == 12 and {row["valid"] for row in rows} == {True, False}
    assert {row["model"] for row in rows} == {"under-test"}
    for row, kept in zip(rows, real.samples, strict=True):
        draft, line = kept.draft, json.loads(kept.to_line())
        for name in ("set", "task", "number", "row", "sample", "stamp", "groups", "prompts", "shortened"):
            assert row[name] == getattr(kept, name)
        for name in ("ended", "reward", "metrics", "critique", "contentless", "valid"):
            assert row[name] == getattr(draft, name)
        assert [json.loads(row[name]) for name in ("record", "episode")] == [kept.record, draft.episode]
        assert json.loads(row["jury"]) == line["draft"]["jury"]
        said = [{"seat": seat, **one} for seat, seen in (draft.seats or {}).items() for one in seen]
        assert row["messages"] == (None if draft.seats is None else said)
        assert (row["cause"], row["failure_stage"]) == (draft.cause, draft.failure and draft.failure.stage)
        for stage in ("play", "judge"):
            times = draft.seconds.get(stage), draft.started.get(stage)
            assert (row[f"seconds_{stage}"], row[f"started_{stage}"]) == times
        for use in row["usage"]:
            known = line["usage"][use.pop("role")]
            assert use == {name: count for name, count in known.items() if name != "latency"}


def test_totals_are_the_sums_of_the_roles(real, tmp_path):
    for row in written(real, tmp_path):
        judges = [use for use in row["usage"] if use["role"] != "policy"]
        assert row["judges_prompt_tokens"] == sum(use["prompt_tokens"] for use in judges)
        assert row["judges_calls"] == sum(use["calls"] for use in judges)
        (policy,) = (use for use in row["usage"] if use["role"] == "policy")
        assert row["policy_completion_tokens"] == policy["completion_tokens"]
        cost = (policy["prompt_tokens"] + 2 * policy["completion_tokens"]) / 1e6
        assert row["policy_cost_usd"] == pytest.approx(cost)
        assert row["judges_cost_usd"] is None or not any(use["unpriced"] for use in judges)


def test_what_failed_or_is_not_known_is_no_number(tmp_path):
    unpriced = {"policy": usage(0.5), "judge": usage(0.25), "partner": usage(0.0, unpriced=1)}
    run = finished_run(tmp_path / "run", [sample(None, 0), sample(0.0, 1, usages=unpriced)])
    failed, valid = written(run, tmp_path)
    assert failed["reward"] is None and failed["metrics"] is None and failed["seconds_judge"] is None
    assert (failed["cause"], failed["failure_stage"], failed["failure_detail"]) == ("timeout", "judge", "it hung")
    assert (valid["reward"], valid["cause"], valid["metric"]) == (0.0, None, "accuracy")
    assert (valid["policy_cost_usd"], valid["judges_cost_usd"]) == (0.5, None)
    frame = pd.read_parquet(tmp_path / "samples.parquet")
    assert frame["reward"].dtype == float and math.isnan(frame["reward"][0])
    assert frame[frame["valid"]]["reward"].mean() == 0.0


def test_half_a_surrogate_pair_is_replaced_and_the_journal_keeps_it(tmp_path):
    run = finished_run(tmp_path / "run", [sample(1.0, 0, answer=HALF), sample(1.0, 1, answer="fine")])
    broken, fine = written(run, tmp_path)
    assert broken["messages"][0]["content"] == "half \ufffd of a pair"
    assert run.samples[0].draft.seats["policy"][0]["content"] == HALF
    assert fine["messages"][0]["content"] == "fine"
