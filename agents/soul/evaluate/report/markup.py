"""Build HTML safely: every string that is not `Markup` is escaped. A score with its interval is drawn as SVG."""

from __future__ import annotations

from html import escape

from soul.metrics.intervals import Interval

_VOID = frozenset({"col", "input", "link", "meta"})
WIDTH, HEIGHT, MARGIN = 116, 14, 4
AT = {"bounds": 11, "interval": 7}  # at different heights, so that neither hides the other
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)  # shares of the range
USUAL: Interval = (0.0, 1.0)


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


def interval_bar(
    mean: float | None, interval: Interval | None, bounds: Interval | None = None, range_: Interval = USUAL
) -> Markup:
    """An SVG image; an empty scale if there is no mean.

    Args:
        range_: lowest and highest value of the metric. Like all values, in units of the metric: 1 is 100 on the scale.
    """

    def x(value: float) -> str:
        share = (value - range_[0]) / (range_[1] - range_[0])
        return f"{MARGIN + (WIDTH - 2 * MARGIN) * min(1.0, max(0.0, share)):.1f}"

    at = [range_[0] + tick * (range_[1] - range_[0]) for tick in TICKS]
    drawn = [element("line", class_="tick", x1=x(t), x2=x(t), y1=4, y2=HEIGHT - 4) for t in at]
    if range_[0] < 0 < range_[1]:
        drawn.append(element("line", class_="zero", x1=x(0), x2=x(0), y1=1, y2=HEIGHT - 1))
    for kind, ends in (("bounds", bounds), ("interval", interval)):
        if ends is not None and not (kind == "bounds" and ends[0] == ends[1]):  # equal bounds: nothing failed
            drawn.append(element("line", class_=kind, x1=x(ends[0]), x2=x(ends[1]), y1=AT[kind], y2=AT[kind]))
    if mean is not None:
        drawn.append(element("circle", class_="mean", cx=x(mean), cy=AT["interval"], r="3.2"))
    ends_text = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}" if interval else "no interval"
    label = f"95 % interval: {ends_text}; the scale is {scale(range_)}"
    return element("svg", *drawn, class_="bar", width=WIDTH, height=HEIGHT, role="img", aria_label=label)


def scale(range_: Interval) -> str:
    """A range as text: "0 to 100"."""
    return f"{100 * range_[0]:.0f} to {100 * range_[1]:.0f}"
