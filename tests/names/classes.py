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


def subclasses_in(module: ModuleType) -> Iterator[type]:
    """The classes of a module of ours that inherit from the stack."""
    for found in vars(module).values():
        if isinstance(found, type) and found.__module__ == module.__name__ and _stack_bases(found):
            yield found


def check_class(cls: type, findings: Findings) -> None:
    """Check one subclass: what the base asks for, overrides, calls of `super()`, and attributes of `self`."""
    label = f"{cls.__module__}.{cls.__qualname__}"
    missing = [] if cls.__subclasses__() or ABC in cls.__bases__ else sorted(getattr(cls, "__abstractmethods__", ()))
    findings.check("classes", label, f"the base asks for {', '.join(missing)}" if missing else None)
    for name, ours in vars(cls).items():
        theirs = next((vars(base)[name] for base in _stack_bases(cls) if name in vars(base)), None)
        if theirs is not None and isinstance(_plain(ours), _FUNCTION) and not name.startswith("__"):
            findings.check("overrides", f"{label}.{name}", _unfit(ours, theirs))
    attributes = None if any("__getattr__" in vars(base) for base in cls.__mro__) else _attributes(cls)
    for node in ast.walk(_tree(cls)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self" and attributes is not None:
            complaint = None if node.attr in attributes else f"self.{node.attr} is nowhere defined"
            findings.check("attributes of self", label, complaint)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func.value) == "super()":
                name = node.func.attr
                above = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
                findings.check("super calls", label, None if above is not None else f"super().{name}: no base has it")
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
        return None  # the base says nothing of what it is called with, as torch.autograd.Function's methods
    if inspect.Parameter.VAR_POSITIONAL in kinds and inspect.Parameter.VAR_KEYWORD in kinds:
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
