"""The package that docs/add_a_task.md describes, made from the page itself: what the page says is what is tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add_a_task.md"


def files() -> dict[str, str]:
    """File name -> text, of the blocks that begin with a comment that names a file."""
    blocks = re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return dict(blocks)


def install(folder: Path) -> Path:
    """Lay the package out as an installer would, entry points included, so that it is found on PYTHONPATH."""
    found = files()
    for name in ("tips.py", "tips_example.py", "test_tips.py"):
        (folder / name).write_text(found[name])
    project = tomllib.loads(found["pyproject.toml"])["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    text = "\n".join(f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()) for group, points in groups)
    (info / "entry_points.txt").write_text(text + "\n")
    return folder
