"""Every path of the repository and every module that the pages name exists."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = "agents benchmarks data docker docs recipe requirements scripts sft tests verl".split()
MADE_BY_USERS = re.compile(r"data/(?:sim_|osim_)|data/\w+\.parquet")
PAGES = sorted(
    [
        *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("docker/*.md"),
        *ROOT.glob("recipe/*/*.md"),
    ],
    key=lambda page: page.relative_to(ROOT),
)


def named(page: str) -> list[str]:
    """The paths in backticks, and the modules behind `python -m`."""
    text = page.replace("\n", " ")
    code = " ".join(re.findall(r"`([^`]+)`", page))
    paths = re.findall(rf"(?<![\w/.${{-])(?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*/]", code)
    modules = re.findall(r"python -m ((?:soul|ditto|sft|data|recipe|benchmarks)[\w.]*\w)", text)
    return [*(path for path in paths if not MADE_BY_USERS.match(path)), *modules]


def exists(name: str) -> bool:
    """Whether a file, a folder, a glob's match or a module is there."""
    if "/" in name:
        return any(ROOT.glob(name)) if "*" in name else (ROOT / name).exists()
    return find_spec(name) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    gone = [name for name in named(page.read_text(encoding="utf-8")) if not exists(name)]
    assert not gone, f"{page.relative_to(ROOT)} names what is not there: {gone}"
