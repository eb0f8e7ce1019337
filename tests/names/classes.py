"""Our subclasses of the stack's classes: do overrides, `super()` calls and attributes of `self` still fit?"""

import ast
import inspect
import textwrap
from abc import ABC
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from tests.names.uses import STACK, Findings, check_call

# Python and typing fill these in for every class.
_NOT_METHODS = frozenset(vars(object)) | {
    "__abstractmethods__",
    "__annotations__",
    "__dict__",
    "__weakref__",
    "__parameters__",
}


def subclasses_in(module: ModuleType) -> Iterator[type]:
    """The classes of a module of ours that inherit from the stack."""
    for found in vars(module).values():
        if isinstance(found, type) and found.__module__ == module.__name__ and _stack_bases(found):
            yield found


def check_class(cls: type, called: set[str], findings: Findings) -> None:
    """Check one subclass.

    Args:
        called: all names that our sources read as attributes. A method that is not in the base, and that nobody of ours
            calls, was an override of something that is gone.
    """
    label = f"{cls.__module__}.{cls.__qualname__}"
    missing = [] if cls.__subclasses__() or ABC in cls.__bases__ else sorted(getattr(cls, "__abstractmethods__", ()))
    findings.check("classes", label, f"the base asks for {', '.join(missing)}" if missing else None)
    for name, ours in vars(cls).items():
        if name in _NOT_METHODS or not isinstance(_plain(ours), _FUNCTION):
            continue
        theirs = next((vars(base)[name] for base in _stack_bases(cls) if name in vars(base)), None)
        if theirs is not None:
            syntax = name.startswith("__") and name != "__init__"  # Python calls these by place
            findings.check("overrides", f"{label}.{name}", None if syntax else _unfit(ours, theirs))
        elif not name.startswith("__") and name not in called:
            bases = ", ".join(base.__qualname__ for base in _stack_bases(cls))
            findings.check(
                "overrides", f"{label}.{name}", f"nobody calls it and {bases} has no such method: did it once?"
            )
    _check_body(cls, label, findings)


def _check_body(cls: type, label: str, findings: Findings) -> None:
    """Calls of `super().x(...)`, and attributes and calls of `self`."""
    attributes = None if any("__getattr__" in vars(base) for base in cls.__mro__) else _attributes(cls)
    for node in ast.walk(_tree(cls)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            if attributes is not None:
                found = node.attr in attributes
                findings.check("attributes of self", label, None if found else f"self.{node.attr} is nowhere defined")
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, name = node.func.value, node.func.attr
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
            above = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
            complaint = None if above is not None else f"super().{name}: no base has it"
            findings.check("super calls", label, complaint)
        elif isinstance(owner, ast.Name) and owner.id == "self":
            above = inspect.getattr_static(cls, name, None)
        else:
            continue
        if isinstance(above, _FUNCTION):
            check_call(above, node, f"{label}: {ast.unparse(node.func)}", findings, bound=True)


def _unfit(ours: Any, theirs: Any) -> str | None:
    """Why a method of ours cannot stand in for the base's; None where it can."""
    if isinstance(ours, property) or isinstance(theirs, property):
        return None if isinstance(ours, property) == isinstance(theirs, property) else "one is a property, one is not"
    ours, theirs = _plain(ours), _plain(theirs)
    if not isinstance(theirs, _FUNCTION):
        return None
    if _is_async(ours) != _is_async(theirs):
        return "one is async, one is not"
    mine, base = dict(inspect.signature(ours).parameters), dict(inspect.signature(theirs).parameters)
    base.pop("_ray_trace_ctx", None)  # Ray adds it to the methods of an actor
    kinds = {p.kind for p in mine.values()}
    if inspect.Parameter.VAR_POSITIONAL in {p.kind for p in base.values()}:
        return None  # the base says nothing of what it is called with
    if inspect.Parameter.VAR_POSITIONAL in kinds and inspect.Parameter.VAR_KEYWORD in kinds:
        return None
    if inspect.Parameter.VAR_POSITIONAL in {p.kind for p in base.values()}:  # as torch.autograd.Function's methods
        return None
    shown = f"{inspect.signature(ours)} for {inspect.signature(theirs)}"
    by_place = [p.name for p in base.values() if p.kind in _BY_PLACE]
    if [p.name for p in mine.values() if p.kind in _BY_PLACE][1 : len(by_place)] != by_place[1:]:
        return f"takes other parameters: {shown}"
    by_name = {p.name for p in base.values() if p.kind is inspect.Parameter.KEYWORD_ONLY} - set(mine)
    if by_name and inspect.Parameter.VAR_KEYWORD not in kinds:
        return f"does not take {', '.join(sorted(by_name))}: {shown}"
    needed = [p.name for p in mine.values() if p.default is p.empty and p.kind in (*_BY_PLACE, p.KEYWORD_ONLY)]
    extra = [name for name in needed[1:] if name not in base]
    return f"asks for {', '.join(extra)}: {shown}" if extra else None


_FUNCTION = type(lambda: None)
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _is_async(function: Any) -> bool:
    """Whether it is awaited or iterated with `async for`: an abstract method without `yield` may stand for either."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _plain(member: Any) -> Any:
    """The function of a method, static method, class method or property."""
    if isinstance(member, property):
        return member.fget
    return inspect.unwrap(getattr(member, "__func__", member)) if member is not None else None


def _stack_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] in STACK]


@cache
def _tree(cls: type) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(cls)))


def _attributes(cls: type) -> set[str]:
    """All that an instance has: what its classes define, and what any of their methods assigns to self."""
    found = set(dir(cls))
    for base in cls.__mro__[:-1]:
        found |= set(getattr(base, "__annotations__", {}))
        try:
            tree = _tree(base)
        except (OSError, TypeError):
            continue
        found |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        }
    return found
