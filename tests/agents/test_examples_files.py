"""`python -m agents.examples`: what it writes can be read back, all tasks in one file."""

import pytest

from agents import examples
from agents.examples.__main__ import main
from agents.rows import read_rows

ROWS = 8  # enough for every kind of question of a task


@pytest.mark.parametrize("name", [*examples.names(), "all"])
def test_rows_come_back_as_they_were(name, tmp_path):
    file = tmp_path / "folder" / "rows.parquet"
    main([name, "--rows", str(ROWS), "--out", str(file)])
    wanted = [(task, number) for task in (examples.names() if name == "all" else [name]) for number in range(ROWS)]
    found = read_rows([str(file)])
    assert [(item.task.name, item.row.index) for item in found] == wanted
    for item, (task, number) in zip(found, wanted, strict=True):
        assert item.row == examples.load(task).row(number)
