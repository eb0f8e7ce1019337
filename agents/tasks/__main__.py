"""`python -m agents.tasks` lists the tasks; `python -m agents.tasks files NAMES DATA_DIR` names a launch's files.

NAMES is what `run_rl.sh` is given: a name, several with commas, "all" or "paper". The first line holds the training
files, the second those for validation.

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
    _, names, data_dir = arguments
    try:
        found = tasks.launches(names)
        for launch in found:
            tasks.load(launch.task)
    except UnknownTask as error:
        print(f"\nUnknownTask: {error}\n", file=sys.stderr)
        return 2
    print(*(Path(data_dir) / "sim_rl_data" / f"{launch.train}.parquet" for launch in found))
    print(*(Path(data_dir) / "sim_eval_data" / f"{launch.val}.parquet" for launch in found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
