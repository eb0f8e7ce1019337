"""A comparison as a table with its warnings and notes, for the terminal and in Markdown.

Scores are headlines times 100, as on the model card. The headline comes first, then the sets by effect.
"""

from collections.abc import Sequence

from soul.compare.comparison import Comparison, SetComparison, is_star
from soul.metrics.intervals import Interval
from soul.table import NONE, Table, markdown_text

MARK = " (!)"  # follows the name of a set whose scores are not comparable
HEAD = ("difference [95 %]", "won / tied / lost", "p", "p (Holm)")


def table(comparisons: Sequence[Comparison]) -> Table:
    """The table of all comparisons, one below the other."""
    first = comparisons[0]
    labels = ("draft", "refined") if first.base is first.other else first.labels
    head = ("set", "rows", labels[0], labels[1] if len(comparisons) == 1 or labels[1] == "refined" else "score", *HEAD)
    body, sections = [], []
    for one in comparisons:
        body += [_headline(one), *(_line(of_set, one.adjusted[of_set.name]) for of_set in one.by_effect)]
        sections += [f"{one.labels[1]}: headline", *[one.labels[1]] * len(one.sets)]
    return Table(
        head,
        body,
        sections,
        [*(text for one in comparisons for text in notes(one, named=len(comparisons) > 1)), about(comparisons)],
        whole=frozenset({4, 5}),
        optional=(5, 6, 1, 2, 3, 7),
    )


def about(comparisons: Sequence[Comparison]) -> str:
    """The note on many comparisons, and on seeds if there are any."""
    count = max((len([s for s in one.sets.values() if s.comparable]) for one in comparisons), default=0)
    text = f"* p < 0.05; of a set, adjusted for {count} of them (Holm). The macro average is one test."
    if any(len(scores) > 1 for one in comparisons for s in one.sets.values() for scores in s.seeds):
        text += " Intervals and p-values are over rows: they do not cover how far seeds differ, which is in (...)."
    return text


def notes(comparison: Comparison, *, named: bool = False) -> list[str]:
    """Why scores are not comparable, and remarks; `named`: each begins with the name of the compared side."""
    by_reason: dict[str, list[str]] = {}
    for one in comparison.sets.values():
        for text in one.reasons:
            by_reason.setdefault(text, []).append(one.name)
    texts = [
        f"NOT COMPARABLE in {', '.join(names)}: {text}. These differences are not due to the models alone, and no "
        "average includes them."
        for text, names in by_reason.items()
    ]
    texts += comparison.notes
    for one in comparison.sets.values():
        texts += [f"{one.name}: {text}." for text in one.notes]
        if one.not_paired:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in one.not_paired.items())
            texts.append(f"{one.name}: rows that are not paired: {counts}.")
    return [f"{comparison.labels[1]}: {text}" if named else text for text in texts]


def markdown(comparisons: Sequence[Comparison], shown: Table) -> str:
    """A table of these comparisons as Markdown, with the folders that it compares."""
    sides = {id(side): side for one in comparisons for side in (one.base, one.other)}.values()
    folders = [f"- {markdown_text(side.label)}: {', '.join(f'`{place}`' for place in side.folders)}" for side in sides]
    parts = [f"## {title(comparisons)}", "\n".join(folders), shown.markdown().rstrip()]
    return "\n\n".join([*parts, *map(markdown_text, shown.notes)]) + "\n"


def title(comparisons: Sequence[Comparison]) -> str:
    """The heading: what is compared with what."""
    first = comparisons[0]
    if first.base is first.other:
        return f"Refined answers against drafts: {', '.join(one.base.label for one in comparisons)}"
    return f"{', '.join(one.other.label for one in comparisons)} against {first.base.label}"


def _headline(comparison: Comparison) -> Sequence[str]:
    macro = comparison.macro
    count = f"{macro.sets} of {macro.of}" if macro.sets != macro.of else str(macro.of)
    name = f"{comparison.labels[1]}: macro average, {count} {'set' if macro.of == 1 else 'sets'}"
    difference = _difference(macro.difference, macro.interval) + " *" * is_star(macro.p_value)
    return name, "", "", "", difference, "", _p(macro.p_value), ""


def _line(one: SetComparison, adjusted: float | None) -> Sequence[str]:
    means = [_score(mean, seeds) for mean, seeds in zip(one.means or (None, None), one.seeds, strict=True)]
    tally = " / ".join(f"{count:,}" for count in one.tally) if one.rows else NONE
    difference = _difference(one.estimate.mean, one.estimate.interval) if one.estimate else NONE
    name, starred = one.name + MARK * (not one.comparable), difference + " *" * is_star(adjusted)
    return name, f"{len(one.rows):,}", *means, starred, tally, _p(one.p_value), _p(adjusted)


def _score(mean: float | None, seeds: Sequence[float]) -> str:
    if mean is None:
        return NONE
    spread = f" ({100 * min(seeds):.1f} to {100 * max(seeds):.1f})" if len(seeds) > 1 else ""
    return f"{100 * mean:.1f}{spread}"


def _difference(difference: float | None, interval: Interval | None) -> str:
    if difference is None:
        return NONE
    return f"{100 * difference:+.1f} [{f'{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}' if interval else NONE}]"


def _p(p: float | None) -> str:
    return NONE if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001"
