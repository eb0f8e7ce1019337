"""The packages that docs/add_a_task.md describes, laid out as an installer would, for PYTHONPATH."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from soul.new_task import create

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add_a_task.md"


def page_files() -> dict[str, str]:
    """File name -> text, of the page's blocks that begin with a comment that names a file."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return dict(blocks)


def install_new(folder: Path) -> Path:
    """`soul init dilemmas`; returns the folder for PYTHONPATH."""
    package = create("dilemmas", folder)
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    _register(package, project["name"], project["entry-points"])
    return package


def install_tips(folder: Path) -> Path:
    """The page's task with a score of its own; returns the folder for PYTHONPATH."""
    for name in ("tips.py", "tips_example.py"):
        (folder / name).write_text(page_files()[name])
    points = {"soul.tasks": {"tips": "tips:Tips"}, "soul.examples": {"tips": "tips_example:TipsExample"}}
    _register(folder, "tips", points)
    return folder


def _register(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    sections = (f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()) for group, points in groups.items())
    (info / "entry_points.txt").write_text("\n".join(sections) + "\n")
