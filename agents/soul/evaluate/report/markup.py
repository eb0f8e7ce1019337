"""Build HTML safely: every string that is not `Markup` is escaped."""

from __future__ import annotations

from html import escape

_VOID = frozenset({"col", "input", "link", "meta"})


class Markup(str):
    """HTML from `element` or `join`, which is not escaped again."""


def element(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Markup:
    """Build one element.

    Args:
        children: text that is not Markup is escaped; None is left out.
        attributes: `class_` becomes class, and `_` becomes `-`. False and None are left out; True gives the bare name.
    """
    attribute_text = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(
        f"<{name}{attribute_text}>" if name in _VOID else f"<{name}{attribute_text}>{join(*children)}</{name}>"
    )


def join(*children: str | None) -> Markup:
    """Join children; text that is not Markup is escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children if child))
