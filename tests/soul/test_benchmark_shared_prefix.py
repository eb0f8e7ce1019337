"""The benchmark of shared prompts counts right, on sizes that one can count by hand and on a task's own prompts."""

import pytest

from benchmarks.shared_prefix import CRITIQUE, gain, main, prompts_of, shared
from data.rows import write_rows
from soul import examples


def test_sizes_that_one_can_count():
    assert shared("abcd", "abcdefgh") == 0.5 and shared("abcd", "xbcd") == 0
    # two drafts: 2 * (4 + 4 + 8) characters one by one, and 4 + 2 * 4 as a tree
    assert gain("abcd", "abcdefgh", 2) == pytest.approx(32 / 12)


def test_a_file_of_two_tasks(tmp_path, capsys):
    for name in ("hitom", "fantom"):
        example = examples.load(name)
        write_rows(tmp_path / f"{name}.parquet", name, [example.row(0).model_dump(mode="json")])
        ((base, refined),) = prompts_of(name, example.row(0))
        assert CRITIQUE.strip() in refined and CRITIQUE.strip() not in base and shared(base, refined) > 0.5
    main([str(tmp_path / "hitom.parquet"), str(tmp_path / "fantom.parquet"), "--rows", "1"])
    printed = capsys.readouterr().out
    assert "hitom" in printed and "fantom" in printed and "%" in printed
