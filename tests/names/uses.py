"""What one source file takes from the training stack: imported names, their attributes, and calls with arguments."""

import ast
import importlib
import inspect
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

STACK = frozenset(
    "hydra omegaconf peft ray safetensors tensordict tokenizers torch torchdata transfer_queue transformers verl"
    " vllm".split()
)
# Callables whose signature is not what they take; of a class, its subclasses too.
NOT_AS_THEY_SAY = {
    "NonTensorData": "a tensorclass fills in batch_size by itself",
    "PreTrainedConfig": "takes any keyword, and keeps those it does not know",
}


@dataclass(frozen=True)
class Import:
    """`name` now means `module`, or `attribute` of it."""

    name: str
    module: str
    attribute: str | None
    line: int

    @property
    def dotted(self) -> str:
        return self.module if self.attribute is None else f"{self.module}.{self.attribute}"


@dataclass
class Findings:
    """What was checked, and what is wrong."""

    checked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wrong: list[str] = field(default_factory=list)

    def check(self, kind: str, place: str, complaint: str | None) -> None:
        self.checked[kind] += 1
        if complaint:
            self.wrong.append(f"{place}: {complaint}")


class Missing(AttributeError):
    """A name that the installed package does not have."""


def imports_of(tree: ast.AST) -> list[Import]:
    """Every import of the stack, at the top of the file or inside a function."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                found.append(Import(alias.asname or module, module, None, node.lineno))
                if not alias.asname and "." in alias.name:
                    found.append(Import("", alias.name, None, node.lineno))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [Import(a.asname or a.name, node.module, a.name, node.lineno) for a in node.names]
    return [item for item in found if item.module.partition(".")[0] in STACK]


def load(module: str, attribute: str | None = None) -> Any:
    """Import a module, or one attribute of it.

    Raises:
        Missing: the installed package has no such module or attribute, or the module cannot be imported.
    """
    try:
        found = importlib.import_module(module)
    except Exception as error:  # noqa: BLE001  (whatever keeps a module from being imported is the finding)
        raise Missing(f"{type(error).__name__}: {error}") from error
    return found if attribute is None else step_into(found, attribute)


def step_into(owner: Any, name: str) -> Any:
    """An attribute of a module or class; a module's may be a submodule that nobody imported yet."""
    if hasattr(owner, name):
        return getattr(owner, name)
    if isinstance(owner, ModuleType):
        try:
            return importlib.import_module(f"{owner.__name__}.{name}")
        except ImportError:
            raise Missing(f"{owner.__name__} has no {name!r}") from None
    if any(name in getattr(base, "__annotations__", {}) for base in owner.__mro__):
        return None  # a field without default
    raise Missing(f"{owner.__module__}.{owner.__qualname__} has no {name!r}")


def check_file(path: Path, label: str, findings: Findings) -> None:
    """Check all that one file takes from the stack."""
    tree = ast.parse(path.read_text())
    known: dict[str, Any] = {}
    rebound = _names_bound_otherwise(tree)
    for item in imports_of(tree):
        place = f"{label}:{item.line}"
        try:
            found = load(item.module, item.attribute)
        except Missing as error:
            findings.check("imports", place, f"cannot import {item.dotted}: {error}")
            continue
        findings.check("imports", place, None)
        if item.name and item.name not in rebound:
            known[item.name] = found if known.get(item.name, found) is found else None
    for node in ast.walk(tree):
        read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)  # a patch may set what is not there
        if read and (chain := _chain(node)) and known.get(chain[0]) is not None:
            _, complaint = _follow(known[chain[0]], chain[1:])
            findings.check("attributes", f"{label}:{node.lineno}", complaint)
        if isinstance(node, ast.Call) and (chain := _chain(node.func)) and known.get(chain[0]) is not None:
            target, complaint = _follow(known[chain[0]], chain[1:])
            if target is not None and not complaint:
                check_call(target, node, f"{label}:{node.lineno}", findings)


def check_call(target: Any, node: ast.Call, place: str, findings: Findings, bound: bool = False) -> None:
    """Check that `target` takes the arguments of a call; `bound` leaves out its first parameter.

    Functions written in C say nothing of their parameters and are not counted.
    """
    family = target.__mro__ if isinstance(target, type) else (target,)
    if not callable(target) or any(getattr(one, "__qualname__", "") in NOT_AS_THEY_SAY for one in family):
        return
    try:
        signature = inspect.signature(target)
    except (ValueError, TypeError):
        return
    parameters = list(signature.parameters.values())
    if parameters and (
        bound or (isinstance(target, type) and parameters[0].name == "self")
    ):  # classes written in C name it
        parameters = parameters[1:]
    complaint = _mismatch(signature.replace(parameters=parameters), node)
    name = getattr(target, "__qualname__", repr(target))
    findings.check("calls", place, f"{name}{signature}: {complaint}" if complaint else None)


def _mismatch(signature: inspect.Signature, node: ast.Call) -> str | None:
    keywords = {word.arg: None for word in node.keywords if word.arg}
    if any(isinstance(a, ast.Starred) for a in node.args) or any(word.arg is None for word in node.keywords):
        kinds = {p.name: p.kind for p in signature.parameters.values()}
        if inspect.Parameter.VAR_KEYWORD in kinds.values():
            return None
        unknown = [w for w in keywords if kinds.get(w, inspect.Parameter.POSITIONAL_ONLY) in _NOT_BY_KEYWORD]
        return f"takes no {', '.join(unknown)}" if unknown else None
    try:
        signature.bind(*[None] * len(node.args), **keywords)
    except TypeError as error:
        return str(error)
    return None


_NOT_BY_KEYWORD = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


def _chain(node: ast.expr) -> list[str] | None:
    """["torch", "nn", "Linear"] of `torch.nn.Linear`; None where the beginning is no name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        front = _chain(node.value)
        return [*front, node.attr] if front else None
    return None


def _follow(found: Any, names: list[str]) -> tuple[Any, str | None]:
    """Go along attributes as long as they belong to modules and classes: (what is found or None, complaint or None)."""
    for position, name in enumerate(names):
        if not isinstance(found, (ModuleType, type)):
            return None, None
        try:
            found = step_into(found, name)
        except Missing as error:
            return None, str(error)
        if found is None and position < len(names) - 1:
            return None, None
    return found, None


def _names_bound_otherwise(tree: ast.AST) -> set[str]:
    """Names that are also variables or parameters somewhere in the file: what they mean is not certain."""
    variables = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return variables | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
