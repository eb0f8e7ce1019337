"""A sample is taken over only while nothing that it depends on has changed: record, prompts, task version, options."""

import pytest

from soul import tasks
from soul.evaluate.run.settings import stamp_of
from soul.examples.command import write
from soul.prompts import Prompt
from soul.rows.task_files import read_rows


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
