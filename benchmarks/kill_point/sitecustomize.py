"""Hold a process at a chosen file-system call until it is killed; `benchmarks.kills` puts this folder on PYTHONPATH.

Python imports a module of this name at every start. KILL_POINT names an audit event and a pattern of its arguments
("os.rename .*/metrics.jsonl"), and KILL_POINT_IF a path that must exist at that time. An audit hook runs before the
call itself, so the call never happens. Only the processes that the launcher starts are held, not the launcher. The
product does not use this file.
"""

import glob
import os
import re
import sys
import time
from pathlib import Path

_EVENT, _, _PATTERN = os.environ.get("KILL_POINT", "").partition(" ")
_PRESENT = os.environ.get("KILL_POINT_IF", "")
_FLAG = Path(os.environ.get("KILL_POINT_FLAG", ""))


def _hold(event: str, arguments: tuple[object, ...]) -> None:
    if event != _EVENT or not re.fullmatch(_PATTERN, " ".join(str(each) for each in arguments[:2])):
        return
    if sys.argv[0].endswith("train_ppo.py") or not glob.glob(_PRESENT):
        return
    if not _FLAG.exists():
        _FLAG.write_text(f"{os.getpid()} {arguments}")
        time.sleep(300)


if _EVENT:
    sys.addaudithook(_hold)
