"""Variants of a class: the same code with other class attributes, for evaluation sets that share a task."""

from __future__ import annotations

from typing import Any, TypeVar, cast

ClassT = TypeVar("ClassT")


def variant(base: type[ClassT], class_name: str, doc: str | None = None, **attributes: Any) -> type[ClassT]:
    """A subclass of `base` with these class attributes. Assign it to `class_name` in the module of `base`.

    Args:
        doc: its docstring, which docs/tasks shows; None: that of `base`.
    """
    body = {"__module__": base.__module__, "__doc__": doc or base.__doc__, **attributes}
    return cast(type[ClassT], type(class_name, (base,), body))
