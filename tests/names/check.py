"""All of our sources against the installed stack."""

import importlib
from pathlib import Path

from soul.errors import NotInstalled
from tests.names.classes import check_class, subclasses_in
from tests.names.uses import Findings, check_file

ROOT = Path(__file__).resolve().parents[2]
# Folder -> the package that its files are imported as.
PACKAGES = {
    "agents/soul": "soul",
    "data": "data",
    "verl/ditto": "ditto",
    "sft": "sft",
    "recipe": "recipe",
    "benchmarks": "benchmarks",
}
SCRIPTS = ("train_ppo.py", "train_sft.py", "docs/task_pages.py")


def sources() -> dict[Path, str | None]:
    """Every source file of ours -> the name of its module; None for scripts."""
    found: dict[Path, str | None] = {ROOT / script: None for script in SCRIPTS}
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[path] = ".".join([package, *(part for part in parts if part != "__init__")])
    return found


def check_all() -> Findings:
    """Imports of all modules, names and calls of all files, and all subclasses."""
    findings = Findings()
    files = sources()
    classes: list[type] = []
    for path, name in files.items():
        check_file(path, str(path.relative_to(ROOT)), findings)
        if name is None or name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(name)
        except NotInstalled:  # tests/soul/test_adapters_installed.py imports it where its package is
            continue
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
            findings.check("modules", name, f"cannot be imported: {type(error).__name__}: {error}")
            continue
        elsewhere = None if Path(module.__file__ or "").is_relative_to(ROOT) else f"is taken from {module.__file__}"
        findings.check("modules", name, elsewhere)
        classes += subclasses_in(module)
    for cls in classes:  # after all imports: a base of ours is known by its subclasses
        check_class(cls, findings)
    return findings
