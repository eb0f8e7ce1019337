"""The colours of all figures. The pages have the same in their CSS, as variables of these names (light theme)."""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = {
    "draft": "#0b6aa8",
    "refined": "#c2410c",
    "validation": "#6b4fa0",
    "third": "#00795c",
    "fourth": "#97557f",
    "fifth": "#7a6a00",
}
_LIGHTER = 0.5  # share of white in the second round


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, the same in all figures of a command; from the seventh name on, lighter ones."""
    palette = [*COLOURS.values(), *map(_lighter, COLOURS.values())]
    return {name: palette[place % len(palette)] for place, name in enumerate(names)}


def _lighter(colour: str) -> str:
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * _LIGHTER):02x}" for part in parts)
