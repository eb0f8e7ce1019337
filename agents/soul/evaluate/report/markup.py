"""HTML, written so that text can only ever become text: what is not `Markup` is escaped."""

from __future__ import annotations

from html import escape

_VOID = frozenset({"col", "input", "link", "meta"})


class Markup(str):
    """HTML that `element` or `join` made; it may stand in the page as it is."""


def element(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Markup:
    """One element.

    Args:
        children: any text that is not Markup is escaped. None is left out.
        attributes: `class_` is class, and `_` in a name is `-`. False and None are left out, True stands alone.
    """
    made = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{made}>" if name in _VOID else f"<{name}{made}>{join(*children)}</{name}>")


def join(*children: str | None) -> Markup:
    """Several children in a row."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children if child))
