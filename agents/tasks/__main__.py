"""`python -m agents.tasks` lists the tasks; `python -m agents.tasks files NAME DATA_DIR` names a launch's files.

The launchers ask here, so that names and files stand in one table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agents import tasks
from agents.errors import UnknownTask


def main(arguments: list[str]) -> int:
    """Returns the exit code; 2 for an unknown task."""
    if not arguments:
        print("\n".join(tasks.LAUNCHES))
        return 0
    _, name, data_dir = arguments
    try:
        found = tasks.launch(name)
        tasks.load(found.task)
    except UnknownTask as error:
        print(f"\nUnknownTask: {error}\n", file=sys.stderr)
        return 2
    print(Path(data_dir) / "sim_rl_data" / f"{found.train}.parquet")
    print(Path(data_dir) / "sim_eval_data" / f"{found.val}.parquet")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
