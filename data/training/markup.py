"""Build HTML safely: every string that is not `Markup` is escaped."""

from __future__ import annotations

from html import escape


class Markup(str):
    """HTML from `element` or `join`, which is not escaped again."""


def element(name: str, /, *children: str | None, **attributes: str) -> Markup:
    """Build one element.

    Args:
        children: text that is not Markup is escaped; None is left out.
        attributes: `class_` becomes class, and `_` becomes `-`.
    """
    known = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    end = "" if name == "meta" else f"{join(*children)}</{name}>"
    return Markup(f"<{name}{known}>{end}")


def join(*children: str | None) -> Markup:
    """Join children; text that is not Markup is escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children if child))
