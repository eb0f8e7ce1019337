"""A sample is taken over only while nothing that it depends on has changed: record, prompts, task version, options."""

import pytest

from soul import tasks
from soul.evaluate import __main__ as command_line
from soul.evaluate.run.settings import stamp_of
from soul.examples.__main__ import write
from soul.prompts import Prompt
from soul.rows.task_files import read_rows
from soul.tasks.hitom import HiToM
from soul.testing import FakeOpenAI, Text

ROWS = 4


@pytest.fixture
def rows(tmp_path):
    write(["hitom"], ROWS, tmp_path / "stories.parquet")
    return tmp_path / "stories.parquet"


def reworded(self, row):
    return "Take your time. " + original_render(self, row)


original_render = HiToM.render


def changed_prompt_text(monkeypatch):
    task = tasks.load("humanual-opinion")
    edited = tuple(Prompt(f"{prompt} Be strict.", prompt.id) for prompt in task.prompts)  # under the old id
    monkeypatch.setattr(type(task), "prompts", edited)


def changed_version(monkeypatch):
    kind = type(tasks.load("humanual-opinion"))
    monkeypatch.setattr(kind, "version", kind.version + 1)


def changed_policy_prompt(monkeypatch):
    kind = type(tasks.load("humanual-opinion"))
    monkeypatch.setattr(kind, "system", lambda self, row: "Answer as the person would.")


@pytest.mark.parametrize("change", [changed_prompt_text, changed_version, changed_policy_prompt])
def test_the_stamp_is_of_all_that_a_sample_depends_on(change, tmp_path, monkeypatch):
    write(["humanual-opinion"], 1, tmp_path / "opinions.parquet")
    (row,) = read_rows([str(tmp_path / "opinions.parquet")])
    before = stamp_of(row)
    assert stamp_of(row) == before
    change(monkeypatch)
    assert stamp_of(row) != before


def test_a_changed_set_costs_the_other_sets_nothing(tmp_path, monkeypatch):
    """A start that asks for the changed set alone begins a new folder, which takes over what the others hold."""
    files = {name: str(tmp_path / f"{name}.parquet") for name in ("hitom", "paratomi")}
    for name, file in files.items():
        write([name], ROWS, tmp_path / file)
    with FakeOpenAI(Text("<answer>A</answer>")) as fake:
        words = ["policy.model=m", f"policy.base_url={fake.url}", "policy.api_key_env=none", "--out", str(tmp_path)]
        assert command_line.main([*files.values(), *words]) == 0
        monkeypatch.setattr(HiToM, "render", reworded)
        assert command_line.main([files["hitom"], *words]) == 0
        asked = len(fake.requests)
        assert command_line.main([files["paratomi"], *words]) == 0
        assert len(fake.requests) == asked
