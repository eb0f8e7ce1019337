"""The token store is kept below a limit without touching what a living run reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sft.corpus.store_limits import GIB, folder_bytes, prune
from tests.sft.corpus.corpora import row, write

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
from pathlib import Path
from tests.sft.corpus.corpora import opened
for file in sys.argv[2:]:
    opened(Path(sys.argv[1]), train_files=[file])
print("open", flush=True)
sys.stdin.read()
"""


def start(folder: Path, *files: Path) -> subprocess.Popen[str]:
    """A process that opens corpora, and ends when its input is closed."""
    command = [sys.executable, "-c", PROGRAM, str(folder), *map(str, files)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_only_what_nobody_reads_is_removed_the_oldest_first(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.parquet", [row(each) for each in range(300)]) for name in "abcd"]
    lives, ends = start(tmp_path, files[0]), start(tmp_path, *files[1:])
    assert ends.communicate("") == ("open\n", None)
    assert lives.stdout and lives.stdout.readline() == "open\n"
    for number, name in enumerate("abcd"):
        (about,) = (tmp_path / "cache" / "tokens").glob(f"{name}-*/shard.json")
        os.utime(about, (number, number))
    tokens = tmp_path / "cache" / "tokens"
    sizes = {folder.name[0]: folder_bytes(folder) for folder in tokens.iterdir()}

    def left(limit: int) -> list[str]:
        assert prune(tmp_path / "cache", limit / GIB) == sum(map(folder_bytes, tokens.iterdir()))
        return sorted(folder.name[0] for folder in tokens.iterdir())

    assert left(sum(sizes.values())) == ["a", "b", "c", "d"]
    assert left(sum(sizes.values()) - 1) == ["a", "c", "d"]  # a is older, but in use
    assert left(sizes["a"] + sizes["d"]) == ["a", "d"]
    assert left(1) == ["a"]
    lives.communicate("")
    assert left(1) == []
    assert not list((tmp_path / "cache" / "in_use").iterdir())
