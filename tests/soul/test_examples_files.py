"""`soul examples`: what it writes can be read back, all tasks in one file."""

import pytest

from soul import examples, tasks
from soul.examples.command import main
from soul.rows.task_files import read_rows
from soul.suites import soul_v1

ROWS = 8  # enough for every kind of question of a task


@pytest.mark.parametrize("name", ["sotopia", "all"])
def test_rows_come_back_as_they_were(name, tmp_path):
    file = tmp_path / "folder" / "rows.parquet"
    main([name, "--rows", str(ROWS), "--out", str(file)])
    wanted = [(task, number) for task in (examples.names() if name == "all" else [name]) for number in range(ROWS)]
    found = read_rows([str(file)])
    assert [(item.task.name, item.row.index) for item in found] == wanted
    for item, (task, number) in zip(found, wanted, strict=True):
        assert item.row == examples.load(task).row(number)


def test_a_folder_holds_every_set_and_training_file_under_the_launchers_names(tmp_path, capsys):
    main(["all", "--rows", "3", "--out", str(tmp_path)])
    assert "50 files with 3 invented rows each" in capsys.readouterr().out
    for name, part in soul_v1.SETS.items():
        rows = read_rows([str(tmp_path / "sim_eval_data" / f"{part.file}.parquet")])
        assert {row.task.name for row in rows} == {part.task} and len(rows) == 3, name
    for name in tasks.TASK_FILES:
        launch = tasks.launch(name)
        paths = f"sim_rl_data/{launch.train}.parquet", f"sim_eval_data/{launch.val}.parquet"
        train, val = ({row.row.index for row in read_rows([str(tmp_path / path)])} for path in paths)
        assert train == {3, 4, 5} and val == {0, 1, 2}, name
