"""Links of the repository's pages, as the documentation's site shows them."""

import logging
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).resolve().parents[1]
HOOKS = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))


def shown(markdown: str, page: str = "judge.md") -> str:
    made: str = HOOKS["on_page_markdown"](
        markdown, SimpleNamespace(file=SimpleNamespace(src_uri=page), meta={}), None, None
    )
    return made


CODE = "```python\nx = [a](../sft/config/sft.yaml)\n```\n"


@pytest.mark.parametrize(
    ("markdown", "page", "made"),
    [
        ("[a](docs/judge.md#roles) [b](CONTRIBUTING.md)", "index.md", "[a](judge.md#roles) [b](contributing.md)"),
        ("[the\nseat](../verl/ditto/rollout/token_seat.py)", "judge.md", "[the\nseat](api/ditto/rollout/index.md)"),
        ("[rows](../agents/soul/rows)", "judge.md", "[rows](api/soul/rows/index.md)"),
        ("[verl](https://example.org/x) [here](#roles)", "judge.md", "[verl](https://example.org/x) [here](#roles)"),
        ("[the config](../sft/config/sft.yaml)", "judge.md", "the config (`sft/config/sft.yaml`)"),
        (CODE, "judge.md", CODE),
    ],
)
def test_links_lead_to_pages_of_the_site(markdown: str, page: str, made: str) -> None:
    assert shown(markdown, page) == made


def test_a_link_to_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        shown("[gone](nowhere.md)")
    assert "docs/judge.md links to nowhere.md, which does not exist" in caplog.text


def test_every_package_has_an_api_page() -> None:
    names = [name for name, _ in HOOKS["rooms"]()]
    assert {"soul", "soul.judge.audit", "ditto.objectives", "sft.distill"} <= set(names)
    page = HOOKS["api_page"]("soul.judge.audit", ROOT / "agents/soul/judge/audit")
    assert "::: soul.judge.audit.canaries" in page
