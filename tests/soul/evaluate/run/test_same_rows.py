"""Sub-sampling (LIMIT=100, the paper's protocol): which rows of a set are drawn.

Promise under test: a file, a limit and a seed say it, and nothing else: not the model, the process, the other sets of
the run, their order or the number of samples a row. So rows can be paired between runs, and a run can grow.
"""

from collections import Counter
from types import SimpleNamespace

import pytest

from soul.evaluate.run.settings import EvaluationSettings, row_sampling_order, sample_requests
from soul.examples.command import write
from soul.judge import GatewaySettings
from soul.task_types import Row, Strata
from soul.tasks.hitom import HiToM


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in ("hitom", "paratomi"):
        write([name], 40, folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in ("hitom", "paratomi")}


def drawn(files, model="a", **changes):
    gateway = GatewaySettings.from_sections({"judge": {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "none"}})
    policy = gateway.judge.model_copy(update={"model": model})
    found = sample_requests(EvaluationSettings(policy=policy, gateway=gateway, sets=files, **changes))
    return {name: sorted({item.row.number for item in found if item.set == name}) for name in files}


def test_sets_are_drawn_apart_and_a_larger_limit_holds_the_smaller(files):
    found = [drawn(files, limit=limit) for limit in range(1, 41)]
    for fewer, more in zip(found, found[1:], strict=False):
        assert all(set(fewer[name]) < set(more[name]) for name in files)
    assert found[9]["hitom"] != found[9]["paratomi"]  # files of equal length, one seed
    assert found[-1]["hitom"] == list(range(40)) and drawn(files, limit=99) == found[-1]


class Corpora(HiToM):
    """A task whose rows say their corpus; 60, 30 and 10 of a hundred."""

    def groups(self, row):
        return {"corpus": "a" if row.index < 60 else "b" if row.index < 90 else "c"}


@pytest.mark.parametrize(
    ("equal", "limit", "expected"),
    [
        (False, 10, {"a": 6, "b": 3, "c": 1}),
        (False, 50, {"a": 30, "b": 15, "c": 5}),
        (True, 30, {"a": 10, "b": 10, "c": 10}),
        (True, 60, {"a": 25, "b": 25, "c": 10}),  # c has no more
    ],
)
def test_a_draw_has_the_shares_that_the_task_asks_for(monkeypatch, equal, limit, expected):
    monkeypatch.setattr(Corpora, "strata", Strata("corpus", equal=equal))
    task = Corpora()
    rows = [SimpleNamespace(task=task, row=Row(index=index)) for index in range(100)]
    drawn = row_sampling_order(rows, "0:x")[:limit]
    assert Counter(task.groups(rows[place].row)["corpus"] for place in drawn) == expected
