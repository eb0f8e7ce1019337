"""A file is written whole or not at all, by one process or by several at once."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from soul.files.whole_file import whole_file, write_whole


@pytest.mark.parametrize("shared", [False, True])
def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path, shared):
    path = tmp_path / "rows.parquet"
    write_whole(path, "old")
    with pytest.raises(KeyboardInterrupt), whole_file(path, shared=shared) as partial:
        partial.write_text("half of the ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["rows.parquet"]


def test_several_writers_of_a_shared_file_leave_one_of_their_files(tmp_path):
    path = tmp_path / "cache.json"

    def write(number):
        with whole_file(path, shared=True) as partial:
            partial.write_text(str(number) * 100_000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert path.read_text() in {str(number) * 100_000 for number in range(8)} and os.listdir(tmp_path) == ["cache.json"]
