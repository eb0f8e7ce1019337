"""Run commands with --help one after another in this process, so that they import torch and its friends only once.

    python -m tests.mistakes.print_help recipe/demo/run.py docs/sizing.py ...

Each is run as its file says (`if __name__ == "__main__"`). Prints a JSON object: file -> [exit code, printed text].
"""

from __future__ import annotations

import io
import json
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path


def words_of(file: str) -> list[str]:
    """What stands after `python` on the command line."""
    return (
        [file]
        if file.startswith("docs/")
        else ["-m", file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")]
    )


def ended(file: str) -> tuple[int, str]:
    """Exit code and printed text of a command; for an exception 1 and its traceback."""
    printed, path = io.StringIO(), list(sys.path)
    sys.argv = [file, "--help"]
    try:
        with redirect_stdout(printed):
            if file.startswith("docs/"):
                sys.path.insert(0, str(Path(file).parent))  # Python does so for a script
                runpy.run_path(file, run_name="__main__")
            else:
                runpy.run_module(words_of(file)[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None), printed.getvalue()
    except BaseException:  # noqa: BLE001 - the test shows it, and the other commands are still run
        return 1, traceback.format_exc()
    finally:
        sys.path[:] = path
    return 0, printed.getvalue()


if __name__ == "__main__":
    print(json.dumps({file: ended(file) for file in sys.argv[1:]}))
