"""Hooks of mkdocs (mkdocs.yml): add pages from outside docs/ and the API reference, and check every link.

The pages of the repository link to each other and to source files by relative paths. In the site, a link to a Python
module leads to its API page, a link to any other file of the repository becomes its path as text, and a link to
something that does not exist is a warning, which ends a strict build. Nothing of the project is imported: griffe reads
the sources of the API reference.
"""

from __future__ import annotations

import ast
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

logger = logging.getLogger("mkdocs.plugins.site_pages")

ROOT = Path(__file__).resolve().parents[1]
# Files outside docs/ that are pages of the site.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docker/README.md": "docker.md",
    "recipe/ditto/README.md": "recipe.md",
    "recipe/demo/README.md": "demo.md",
}
PACKAGES = {"soul": "agents/soul", "ditto": "verl/ditto", "sft": "sft"}  # import name -> folder
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_NAME = re.compile(r"(?<=<code>)[^<]+")
_FENCED = re.compile(r"(^ *`{3,}.*?^ *`{3,} *$\n?)", re.MULTILINE | re.DOTALL)


def rooms() -> Iterator[tuple[str, Path]]:
    """Import name and folder of every package that has modules, outer packages first."""
    for name, folder in PACKAGES.items():
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            inner = init.parent.relative_to(ROOT / folder).parts
            yield ".".join([name, *inner]), init.parent


def api_page(package: str, folder: Path) -> str:
    """The reference of a package: itself and each of its modules, in the order of their names."""
    modules = [package, *(f"{package}.{file.stem}" for file in sorted(folder.glob("*.py")) if _has_text(file))]
    return f"# {package}\n\n" + "\n\n".join(
        f"::: {module}" + ("\n    options:\n      show_root_heading: false" if module == package else "")
        for module in modules
    )


def _has_text(file: Path) -> bool:
    return not file.stem.startswith("__") and ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) is not None


def on_config(config: Any) -> Any:
    """Append the tasks' pages, and the API pages nested as the packages are, to the navigation."""
    pages = sorted(f"tasks/{file.name}" for file in (ROOT / "docs/tasks").glob("*.md") if file.stem != "README")
    next(section["Tasks"] for section in config.nav if "Tasks" in section).append({"All tasks": pages})
    top: list[Any] = []
    sections: dict[str, list[Any]] = {}
    for package, _ in rooms():
        outer, _, last = package.rpartition(".")
        sections[package] = [_page_of(package)]
        sections.get(outer, top).append({last: sections[package]})
    config.nav.append({"API": top})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not below docs/."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for package, folder in rooms():
        files.append(File.generated(config, _page_of(package), content=api_page(package, folder)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point the links of a page at pages of the site."""
    here = PurePosixPath(page.file.src_uri)
    if here.parts[0] != "api":
        page.meta.setdefault("search", {"boost": 4})  # a search finds the pages before the reference
    origins = {site: source for source, site in OUTSIDE.items()}
    origin = PurePosixPath(origins.get(str(here), f"docs/{here}"))
    parts = _FENCED.split(markdown)  # text and fenced blocks in turn
    parts[::2] = [_LINK.sub(lambda link: _in_site(link, origin, here), text) for text in parts[::2]]
    return "".join(parts)


def _in_site(link: re.Match[str], origin: PurePosixPath, here: PurePosixPath) -> str:
    """A link of the file `origin` of the repository, as the page `here` of the site has it."""
    picture, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if not target or re.match(r"[a-z]+:", target):
        return link[0]
    path = os.path.normpath(origin.parent / target)
    if not (ROOT / path).exists():
        logger.warning("%s links to %s, which does not exist", origin, target)
        return text
    page = _site_page(path)
    if page is None:
        return text if text.startswith("`") else f"{text} (`{path}`)"
    return f"{picture}[{text}]({os.path.relpath(page, here.parent)}{anchor})"


def _site_page(path: str) -> str | None:
    """The page or picture of the site that shows a file or folder of the repository."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("docs/") and path.endswith((".md", ".svg", ".png")):
        return path.removeprefix("docs/")
    for name, folder in PACKAGES.items():
        inner = PurePosixPath(path)
        if inner.is_relative_to(folder) and (inner.suffix == ".py" or (ROOT / inner / "__init__.py").exists()):
            package = inner.parent if inner.suffix else inner
            return _page_of(".".join([name, *package.relative_to(folder).parts]))
    return None


def _page_of(package: str) -> str:
    return f"api/{package.replace('.', '/')}/index.md"


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Let names in tables break after a dot, a slash or an underscore, so that they fit on a phone."""
    return _CELL.sub(lambda cell: _NAME.sub(lambda name: re.sub(r"(?<=[./_,])", "<wbr>", name[0]), cell[0]), output)
