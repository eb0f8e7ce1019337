"""Several finished runs in one table.

Promise under test: each run is a column under its model's name; a score of another judge, of other rows or of a run
that is not finished is marked, and a note says which set and why; what is comparable is not marked; terminal and
Markdown say the same.
"""

from soul.compare.command import main
from tests.soul.compare.test_compare import by_rule, run_folder
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM


def said(capsys, tmp_path, *folders):
    """What the command says; both forms must say it."""
    out = tmp_path / "table.md"
    assert main([*map(str, folders), "--table", "--out", str(out)]) == 0
    terminal = " ".join(capsys.readouterr().out.split())
    written = out.read_text(encoding="utf-8")
    for note in [line for line in written.splitlines() if line.startswith("(")]:
        assert note.replace("&lt;", "<").replace("\\_", "_") in terminal
    return written


def test_each_run_is_a_column(tmp_path, capsys):
    a = run_folder(tmp_path / "a", by_rule([1.0, 0.0]), "model-a")
    b = run_folder(tmp_path / "b", by_rule([1.0, 1.0]), "model-b")
    text = said(capsys, tmp_path, a, b)
    assert "\n| set | n | model-a | model-b |\n" in text
    assert f"| {TOM} | 2 | *50.0* [-] | **100.0** [-] |" in text
    assert "(1)" not in text  # nothing stands in the way
    again = run_folder(tmp_path / "c", by_rule([0.0, 0.0]), "model-a")
    assert "| a | c |" in said(capsys, tmp_path, a, again)  # the same model twice: by their folders


def test_other_rows_and_unfinished_runs_are_marked(tmp_path, capsys):
    a = run_folder(tmp_path / "a", by_rule([1.0] * 4), "a")
    fewer = run_folder(tmp_path / "fewer", by_rule([1.0] * 3), "fewer")
    other = by_rule([1.0] * 4)
    other[2].record = {**other[2].record, "question": "Another one?"}
    changed = run_folder(tmp_path / "changed", other, "changed")
    late = finished_run(tmp_path / "late", by_rule([1.0] * 4), asked=2, policy={"model": "late"}).folder
    text = said(capsys, tmp_path, a, fewer, changed, late)
    assert "(1) fewer: other rows than a: 1 only in baseline, in hitom." in text
    assert "(2) changed: other rows than a: 1 other record, in hitom." in text
    assert "(3) late: not finished, 4 of 6 samples, in hitom." in text
