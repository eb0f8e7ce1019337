"""docs/configuration.md lists the keys of the configs as they are."""

import runpy
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
MODULE = runpy.run_path(str(ROOT / "docs" / "config_page.py"))
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def names(config: dict, above: str = "") -> list[str]:
    """The dotted names of the values of a YAML file, read in another way than the page reads them."""
    listed = []
    for key, value in config.items():
        if key != "defaults":
            listed += names(value, f"{above}{key}.") if isinstance(value, dict) and value else [f"{above}{key}"]
    return listed


def test_the_page_is_the_one_that_the_code_makes() -> None:
    assert PAGE == MODULE["page"](), "run: python docs/config_page.py"


def test_every_key_of_the_configs_is_on_the_page() -> None:
    files = [*(ROOT / "verl/ditto/config").rglob("*.yaml"), *(ROOT / "sft/config").rglob("*.yaml")]
    assert len(files) > 5
    keys = {name for file in files for name in names(yaml.safe_load(file.read_text(encoding="utf-8")))}
    keys = {name for name in keys if not name.startswith("data.apply_chat_template_kwargs.")}  # any key may stand there
    assert not [name for name in sorted(keys) if f"| `{name}` |" not in PAGE]
