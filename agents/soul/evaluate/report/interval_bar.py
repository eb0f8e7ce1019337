"""A score and its interval as a small drawing on the range of its metric.

A line from end to end of the 95 % interval, a dot for the mean; where samples failed, a dashed line below for the
bounds. Most ranges are 0 to 100; in another range (Sotopia: -43 to 57) a longer
tick marks the 0. What lies beyond the range ends at its edge.
"""

from __future__ import annotations

from soul.evaluate.numbers.set_result import Interval
from soul.evaluate.report.markup import Markup, element

WIDTH, HEIGHT, MARGIN = 116, 14, 4
AT = {"bounds": 11, "interval": 7}  # so that neither hides the other
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the range
USUAL: Interval = (0.0, 1.0)


def interval_bar(
    mean: float | None, interval: Interval | None, bounds: Interval | None = None, range_: Interval = USUAL
) -> Markup:
    """The drawing; an empty scale where there is no mean.

    Args:
        range_: the lowest and the highest value of the metric. All values are in it; 1 is 100 on the scale.
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
    said = f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}" if interval else "no interval"
    label = f"95 % interval: {said}; the scale is {scale(range_)}"
    return element("svg", *drawn, class_="bar", width=WIDTH, height=HEIGHT, role="img", aria_label=label)


def scale(range_: Interval) -> str:
    """A range as text: "0 to 100"."""
    return f"{100 * range_[0]:.0f} to {100 * range_[1]:.0f}"
