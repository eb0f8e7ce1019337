"""The installed training stack has what our code takes from it, and the check that says so would notice if not.

Promise under test (CONTRIBUTING): the names, signatures and base classes that we rely on are read from our own sources
and compared with what is installed, on every set of versions.
"""

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.names.check import ROOT, check_all, sources
from tests.names.classes import check_class
from tests.names.uses import Findings, check_file, imports_of

QUEUE = "verl/ditto/batch/queue.py"


def test_the_stack_has_what_our_code_takes_from_it() -> None:
    findings = check_all()
    assert not findings.wrong, "\n".join(findings.wrong)
    assert min(findings.checked[kind] for kind in ("imports", "attributes", "calls", "overrides", "super calls")) > 0
    assert findings.checked["modules"] > 200


def test_one_module_alone_knows_the_transfer_queue() -> None:
    """verl's next branch drops it: what we use of it has to be replaced in one place."""
    users = {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(item.module.startswith("transfer_queue") for item in imports_of(ast.parse(path.read_text())))
    }
    assert users == {QUEUE}


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("from verl.protocol import NoSuchName", "has no 'NoSuchName'"),
        ("from omegaconf import OmegaConf\nOmegaConf.make({})", "has no 'make'"),
        ("from omegaconf import OmegaConf\nOmegaConf.create({}, no_such_word=1)", "no_such_word"),
        ("from torch.utils.data import Sampler\nSampler(1, 2, 3)", "too many positional"),
    ],
)
def test_what_is_gone_is_reported_with_its_line(source: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "ours.py"
    file.write_text(source)
    findings = Findings()
    check_file(file, "ours.py", findings)
    assert [complaint in wrong and wrong.startswith("ours.py:") for wrong in findings.wrong] == [True]


BASE = """
import abc

class Base(abc.ABC):
    def __init__(self):
        self.kept = 1
    def step(self, batch, scale=1.0): ...
    async def sleep(self): ...
    @property
    def name(self): ...
    def helper(self, key): ...
"""
FITS = """
    def step(self, batch, scale=1.0, ours=None):
        super().step(batch)
        self.helper(self.kept)
    async def sleep(self): ...
    @property
    def name(self): ...
    def own(self): ...
"""


@pytest.mark.parametrize(
    ("base", "ours", "complaint"),
    [
        (BASE, FITS, None),
        (BASE.replace("scale=1.0", "factor=1.0"), FITS, "takes other parameters"),
        (BASE.replace("def step", "def step_once"), FITS, "super().step: no base has it"),
        (BASE.replace("async def sleep", "def sleep"), FITS, "one is async"),
        (BASE.replace("self.kept", "self.moved"), FITS, "self.kept is nowhere defined"),
        (BASE + "    @abc.abstractmethod\n    def new(self): ...\n", FITS, "the base asks for new"),
        (BASE, FITS + "    def on_step_end(self): ...\n", "nobody calls it and Base has no such method"),
    ],
)
def test_a_subclass_that_no_longer_fits_is_reported(
    base: str, ours: str, complaint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = subclass(base, "class Ours(Base):" + ours, tmp_path, monkeypatch)
    findings = Findings()
    check_class(cls, {"own"}, findings)
    assert any(complaint in wrong for wrong in findings.wrong) if complaint else not findings.wrong


def subclass(base: str, ours: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    """The class `Ours`, from a module of ours, over `Base`, from a module of verl's."""
    for name, source in (("verl.invented", base), ("invented", f"from verl.invented import Base\n{ours}")):
        module = ModuleType(name)
        file = folder / f"{name}.py"
        file.write_text(source)
        monkeypatch.setitem(sys.modules, name, module)
        module.__file__ = str(file)
        exec(compile(source, str(file), "exec"), vars(module))
    return module.Ours  # type: ignore[no-any-return]
