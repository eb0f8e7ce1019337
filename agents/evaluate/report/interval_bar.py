"""A score and its interval as a small drawing on the scale of 0 to 100.

A line from end to end of the 95 % interval, a dot for the mean; where samples failed, a dashed line below for the
bounds. What lies beyond the scale (Sotopia's range goes below 0) ends at its edge; the numbers beside the
drawing say where it is.
"""

from __future__ import annotations

from agents.evaluate.report.markup import Markup, element
from agents.evaluate.set_result import Interval

WIDTH, HEIGHT, MARGIN = 116, 14, 4
AT = {"bounds": 11, "interval": 7}  # so that neither hides the other
TICKS = (0, 25, 50, 75, 100)


def interval_bar(mean: float | None, interval: Interval | None, bounds: Interval | None = None) -> Markup:
    """The drawing; an empty scale where there is no mean. Values are in the metric's range, 1 is 100 on the scale."""
    drawn = [element("line", class_="tick", x1=_x(t / 100), x2=_x(t / 100), y1=4, y2=HEIGHT - 4) for t in TICKS]
    for kind, ends in (("bounds", bounds), ("interval", interval)):
        if ends is not None and not (kind == "bounds" and ends[0] == ends[1]):  # equal bounds: nothing failed
            low, high = (_x(end) for end in ends)
            drawn.append(element("line", class_=kind, x1=low, x2=high, y1=AT[kind], y2=AT[kind]))
    if mean is not None:
        drawn.append(element("circle", class_="mean", cx=_x(mean), cy=AT["interval"], r="3.2"))
    said = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}" if interval else "no interval"
    return element(
        "svg", *drawn, class_="bar", width=WIDTH, height=HEIGHT, role="img", aria_label=f"95 % interval: {said}"
    )


def _x(value: float) -> str:
    return f"{MARGIN + (WIDTH - 2 * MARGIN) * min(1.0, max(0.0, value)):.1f}"
