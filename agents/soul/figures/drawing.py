"""Draw figures with matplotlib: `NAME.pdf`, `NAME.svg`, `NAME.png`, and `NAME.csv` with what they show.

matplotlib is imported when a figure is drawn: the base install does without it. The same numbers give the same files.
"""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.errors import BadSettings
from soul.figures.figure import HEAD, Figure, Panel, rows
from soul.files.whole_file import whole_file, write_whole
from soul.table import as_csv

WIDTH, HEIGHT = 3.6, 2.5  # inches of a panel
_DOT, _LEGEND = 0.3, 0.2  # inches of a dot's line, and of a line of the legend
_BESIDE = 2.2  # inches of an entry of the legend
FORMATS = ("pdf", "svg", "png")
_STYLE = {
    "svg.hashsalt": "ditto",  # without it, ids in the file are random
    "pdf.fonttype": 42,  # text stays text; journals refuse matplotlib's default, type 3
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
}
_LEAST_SPAN = 0.1  # of the largest value: what differs by less must not look like much
ZOOMED = "(axis does not include 0)"
_FEW = 4  # names; the seeds of more are not drawn one by one


def require_matplotlib() -> None:
    """Check that matplotlib is installed. Raises BadSettings if it is not."""
    if importlib.util.find_spec("matplotlib") is None:
        raise BadSettings("soul figures needs matplotlib, which is not installed: pip install -e '.[figures]'")


def draw(figure: Figure, folder: Path, palette: Mapping[str, str], formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a figure in all formats, and its CSV. Returns the files."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    with matplotlib.rc_context(_STYLE):
        columns = min(figure.columns, len(figure.panels))
        lines, width = -(-len(figure.panels) // columns), WIDTH * columns
        entries = _entries(figure, palette)
        beside = max(1, int(width / _BESIDE))
        panel_height = _DOT * (len(palette) + 3) if figure.panels[0].dots else HEIGHT
        height = panel_height * lines + _LEGEND * -(-len(entries) // beside)
        canvas = Canvas(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(canvas)
        axes: list[Any] = list(canvas.subplots(lines, columns, squeeze=False).flat)
        for empty in axes[len(figure.panels) :]:
            empty.remove()
        for place, (panel, on) in enumerate(zip(figure.panels, axes, strict=False)):
            on.set_title(panel.title)
            if panel.dots:
                draw_dots(panel, on, palette, named=place % columns == 0)
            else:
                draw_curves(panel, on, palette)
        if entries:
            canvas.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=beside)
        files = [folder / f"{figure.file}.{ending}" for ending in formats]
        for file in files:
            with whole_file(file) as partial:
                canvas.savefig(partial, format=file.suffix[1:], dpi=150, metadata=_metadata(figure, file.suffix))
    table = folder / f"{figure.file}.csv"
    write_whole(table, as_csv([HEAD, *rows(figure)]))
    return [*files, table]


def _metadata(figure: Figure, suffix: str) -> dict[str, Any]:
    """The caption and the hashes of the runs; no date, so that the same numbers give the same file."""
    text = "; ".join(f"{run.name} {run.folder} sha256 {run.sha256}" for run in figure.runs)
    if suffix == ".pdf":
        return {"Subject": figure.caption, "Keywords": text, "CreationDate": None}
    return {"Description": f"{figure.caption} {text}", **({"Date": None} if suffix == ".svg" else {})}


def _entries(figure: Figure, palette: Mapping[str, str]) -> dict[str, Any]:
    """The legend: its labels, each with the line or marker that it explains. Dots have their names on the axis."""
    from matplotlib.lines import Line2D

    panels = [panel for panel in figure.panels if not panel.dots]
    drawn = [curve for panel in panels for curve in panel.curves]
    seeds = {one.name: len(one.seeds) for one in drawn}
    entries = {
        f"{name} ({count} seeds)" if count > 1 else name: Line2D([], [], color=palette[name], lw=1.4)
        for name, count in seeds.items()
    }
    if any(one.dashed for one in drawn):
        entries["refined, with feedback"] = Line2D([], [], color="0.4", lw=1.4, ls="--")
    return entries


def draw_curves(panel: Panel, on: Any, palette: Mapping[str, str]) -> None:
    """The curves of a panel over the steps, with their bands."""
    for curve in panel.curves:
        colour, style = palette[curve.name], "--" if curve.dashed else "-"
        if len(curve.seeds) > 1 and len(palette) <= _FEW:
            for _, values in curve.seeds:
                on.plot(list(values), list(values.values()), color=colour, lw=0.5, alpha=0.35, ls=style)
        steps, means = [at.step for at in curve.points], [at.mean for at in curve.points]
        marker = "." if len(steps) < 3 else None  # a line of one point is invisible
        on.plot(steps, means, color=colour, lw=1.4, ls=style, marker=marker)
        band = [(at.step, at.low, at.high) for at in curve.points if at.low is not None]
        if band:
            on.fill_between(*zip(*band, strict=True), color=colour, alpha=0.15, linewidth=0)
    if panel.zero:
        on.axhline(0, color="0.4", lw=0.6)
    on.set_xlabel("step")
    on.xaxis.get_major_locator().set_params(integer=True)
    on.set_ylim(_limits(panel, on.dataLim.intervaly, on.get_ylim()))
    on.set_ylabel(_zoom(panel, *on.get_ylim()))


def draw_dots(panel: Panel, on: Any, palette: Mapping[str, str], *, named: bool) -> None:
    """The dots of a panel, one below the other; the first panel of a line names them."""
    places = {name: place for place, name in enumerate(palette)}
    for curve in panel.curves:
        (at,), place, colour = curve.points, places[curve.name], palette[curve.name]
        if at.low is not None:
            on.plot([at.low, at.high], [place, place], color=colour, lw=3, alpha=0.35, solid_capstyle="butt")
        if len(curve.seeds) > 1:
            values = [value for _, by_step in curve.seeds for value in by_step.values()]
            on.plot(values, [place] * len(values), ".", color=colour, ms=3, alpha=0.6)
        on.plot(at.mean, place, "o", color=colour, ms=5)
    on.set_yticks(range(len(palette)), list(palette) if named else [""] * len(palette))
    on.set_ylim(len(palette) - 0.5, -0.5)  # the first name on top
    on.margins(x=0.12)
    on.set_xlim(_limits(panel, on.dataLim.intervalx, on.get_xlim()))
    on.set_xlabel(_zoom(panel, *on.get_xlim()))
    on.xaxis.get_major_locator().set_params(nbins=4)


def _limits(panel: Panel, shown: Sequence[float], chosen: Sequence[float]) -> tuple[float, float]:
    """The limits of an axis of values: the range of a reward and what is shown, or at least _LEAST_SPAN apart."""
    lacking = max(0.0, _LEAST_SPAN * max(map(abs, chosen)) - (chosen[1] - chosen[0])) / 2
    low, high = panel.range
    return (
        min(low, shown[0]) if math.isfinite(low) else chosen[0] - lacking,
        max(high, shown[1]) if math.isfinite(high) else chosen[1] + lacking,
    )


def _zoom(panel: Panel, low: float, high: float) -> str:
    """The label of an axis that shows only a part of its metric: neither the range nor 0 is its start."""
    return "" if math.isfinite(panel.range[0]) or low <= 0 <= high else ZOOMED


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
