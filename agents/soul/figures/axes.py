"""Draw one panel on matplotlib's axes: curves with bands and alarms, or dots with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from soul.figures.figure import Alarm, DotPanel, Panel

_LEAST_SPAN = 0.1  # of the largest value: what differs by less must not look like much
_FEW = 4  # names; the seeds of more are not drawn one by one


def draw_curves(panel: Panel, on: Any, palette: Mapping[str, Any]) -> None:
    """The curves of a panel over the steps, with their bands, and the alarms on the axis."""
    for curve in panel.curves:
        colour, style = palette[curve.name], "--" if curve.dashed else "-"
        if len(curve.seeds) > 1 and len(palette) <= _FEW:
            for _, values in curve.seeds:
                on.plot(list(values), list(values.values()), color=colour, lw=0.5, alpha=0.35, ls=style)
        steps = [at.step for at in curve.points]
        marker = "." if len(steps) < 3 else None  # a line of one point is invisible
        on.plot(steps, [at.mean for at in curve.points], color=colour, lw=1.4, ls=style, marker=marker)
        band = [at for at in curve.points if at.low is not None]
        on.fill_between(
            [at.step for at in band],
            [at.low for at in band],
            [at.high for at in band],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
    if panel.zero:
        on.axhline(0, color="0.4", lw=0.6)
    _alarms(panel.alarms, on, palette)
    on.set_title(panel.title)
    on.set_xlabel("step")
    on.xaxis.get_major_locator().set_params(integer=True)
    on.set_ylim(_widened(*on.get_ylim()))
    on.grid(alpha=0.25, lw=0.5)


def _alarms(alarms: Sequence[Alarm], on: Any, palette: Mapping[str, Any]) -> None:
    """A triangle on the axis for each step with an alarm; each name has a height of its own."""
    names = list(dict.fromkeys(alarm.run.name for alarm in alarms))
    for alarm in alarms:
        height = 0.03 + 0.05 * names.index(alarm.run.name)
        on.plot(
            alarm.steps,
            [height] * len(alarm.steps),
            transform=on.get_xaxis_transform(),
            color=palette[alarm.run.name],
            marker="^",
            markersize=4,
            ls="",
            clip_on=False,
        )


def draw_dots(panel: DotPanel, on: Any, palette: Mapping[str, Any], *, named: bool) -> None:
    """The dots of a panel, one below the other; the first panel of a line names them."""
    for place, name in enumerate(palette):
        for dot in (dot for dot in panel.dots if dot.name == name):
            colour = palette[name]
            if dot.low is not None:
                on.plot([dot.low, dot.high], [place, place], color=colour, lw=3, alpha=0.35, solid_capstyle="butt")
            if len(dot.seeds) > 1:
                on.plot([value for _, value in dot.seeds], [place] * len(dot.seeds), ".", color=colour, ms=3, alpha=0.6)
            on.plot(dot.mean, place, "o", color=colour, ms=5)
    on.set_yticks(range(len(palette)), list(palette) if named else [""] * len(palette))
    on.set_ylim(len(palette) - 0.5, -0.5)  # the first name on top
    on.margins(x=0.12)
    on.set_xlim(_widened(*on.get_xlim()))
    on.xaxis.get_major_locator().set_params(nbins=4)
    on.set_title(panel.title)
    on.grid(alpha=0.25, lw=0.5)


def _widened(low: float, high: float) -> tuple[float, float]:
    """The limits of an axis, at least _LEAST_SPAN of the largest value apart."""
    lacking = max(0.0, _LEAST_SPAN * max(abs(low), abs(high)) - (high - low)) / 2
    return low - lacking, high + lacking
