"""Compare any number of runs: `compare_runs`, and the texts behind a row: `pair_texts`.

Two runs are seeds of one side if all their settings are equal but for the seed (in training also folder and name), and
their seeds differ. `against` gives the sides explicitly, as for models that were trained with several seeds.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.compare.comparison import Comparison, ComparisonTable, Side
from soul.compare.evaluations import EvaluationSide, compare_evaluations
from soul.compare.trainings import Groups, TrainingSide, compare_trainings, config_of, means_from_traces
from soul.errors import SoulError
from soul.evaluate.run.run_folder import SETTINGS, EvaluationRun
from soul.evaluate.run.settings import short_names
from soul.files.trace_files import FOLDER
from soul.record import SessionRecord
from soul.shown_answers import Answers, answers_of

_OF_A_START = ("run.dir", "trainer.experiment_name", "trainer.default_local_dir", "trainer.resume_")


class NoSides(SoulError):
    """The folders cannot be compared: one is given twice, or they are of two kinds, or seeds of one thing."""


def compare_runs(
    folders: Sequence[Path],
    against: Sequence[Sequence[Path]] = (),
    *,
    within: bool = False,
    groups_of: Callable[[Path], Groups] = means_from_traces,
) -> ComparisonTable:
    """Compare evaluations, or training runs, with the first one; or the refined answers of each with its drafts.

    Args:
        folders: the first is the baseline, or one of its seeds. With `against`, all are seeds of the baseline.
        against: the seeds of each other side.
        groups_of: function that returns the groups of a training run, given its folder; the page passes one that uses
            its index.

    Raises:
        SoulError: a folder is not a run, or there is nothing to compare.
    """
    given = [*folders, *(folder for side in against for folder in side)]
    for folder in given:
        if [other.resolve() for other in given].count(folder.resolve()) > 1:
            raise NoSides(f"{folder} is given twice. Pass the folders of different runs.")
    training = [folder for folder in given if (folder / FOLDER).is_dir() and not (folder / SETTINGS).is_file()]
    if training and len(training) < len(given):
        raise NoSides(f"{training[0]} is a training run, but not all folders are. Compare runs of one kind.")
    if within and not training:
        raise NoSides(f"{given[0]} has no refined answers: evaluations play drafts only. Pass training runs.")
    runs = {} if training else {folder: EvaluationRun.load(folder) for folder in given}
    settings = {folder: runs[folder].settings if runs else config_of(folder) for folder in given}
    sides = [list(folders), *map(list, against)] if against else _by_settings(settings)
    if len(sides) < 2 and not within:
        raise NoSides(
            f"{', '.join(map(str, folders))}: there is only one side. Pass the folders of two models or settings; "
            "if they differ only in their seed, name the other side with --against. To compare a training run's "
            "refined answers with its drafts, use --within."
        )
    labels = [runs[of_side[0]].name for of_side in sides] if runs else []
    if len(set(labels)) < len(sides):
        labels = short_names([of_side[0].resolve().parts[1:] for of_side in sides])
    named = list(zip(labels, sides, strict=True))
    if runs:
        base, *others = [EvaluationSide(label, [runs[folder] for folder in of_side]) for label, of_side in named]
        return ComparisonTable("across", [compare_evaluations(base, other) for other in others])
    first, *rest = [TrainingSide(label, of_side, list(map(groups_of, of_side))) for label, of_side in named]
    if within:
        return ComparisonTable("within", [compare_trainings(side, side) for side in (first, *rest)])
    return ComparisonTable("across", [compare_trainings(first, side) for side in rest])


def _by_settings(settings: Mapping[Path, Mapping[str, Any]]) -> list[list[Path]]:
    """The folders of each side: equal settings, and seeds that differ."""
    sides: dict[str, dict[str, Path]] = {}
    for folder, of_run in settings.items():
        leaves, place = list(_leaves(of_run)), str((of_run.get("run") or {}).get("dir") or folder)
        seeds = [leaf for leaf in leaves if "seed" in leaf[0].rpartition(".")[2]]
        rest = [(name, value.replace(place, "")) for name, value in leaves if not name.startswith(_OF_A_START)]
        equal = str([leaf for leaf in rest if leaf not in seeds])
        known = sides.setdefault(equal if leaves else str(folder), {})
        if str(seeds) in known:  # the same seed again: a side of its own
            known = sides.setdefault(str(folder), {})
        known[str(seeds)] = folder
    return [list(known.values()) for known in sides.values()]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, json.dumps(value)


def rows_of(comparison: Comparison, name: str) -> dict[str, Any]:
    """The rows of a set for a list: their ids and means, and the questions of an evaluation's rows.

    Raises:
        KeyError: the comparison has no such set.
    """
    one = comparison.sets[name]

    def question(row: str) -> str:
        if not isinstance(comparison.base, EvaluationSide):
            return ""  # its questions are in the traces, which would be read again for each row
        return answers_of(comparison.base.sessions(name, row)[:1])[0].question

    rows = [{**row._asdict(), "question": question(row.id)} for row in one.rows]
    return {"rows": rows, "higher_is_better": one.metric.higher_is_better}


def pair_texts(comparison: Comparison, name: str, row: str) -> dict[str, Any]:
    """Both texts of a row: of each side the sample that explains most of the difference.

    Args:
        name, row: of a set, and the id of one of its rows.

    Raises:
        KeyError: the comparison has no such set or row.
    """
    one = comparison.sets[name]
    scores = {known.id: known[1:] for known in one.rows}[row]
    sides: tuple[Side, Side] = (comparison.base, comparison.other)
    if sides[0] is sides[1]:
        both = [s for s in sides[0].sessions(name, row) if s.draft.valid and s.refined and s.refined.valid]
        rose = 1 if scores[1] >= scores[0] else -1
        widest = max(both, key=lambda s: rose * (_reward(_refined(s)) - _reward(s)))
        shown = [widest, _refined(widest)]
    else:
        of_sides = [side.sessions(name, row) for side in sides]
        if one.kind == "refined":
            of_sides = [[_refined(session) for session in of_side if session.refined] for of_side in of_sides]
        choose = (min, max) if scores[1] > scores[0] else (max, min)
        valid = [[session for session in of_side if session.draft.valid] for of_side in of_sides]
        shown = [pick(of_side, key=_reward) for pick, of_side in zip(choose, valid, strict=True)]
    # Training keeps no record, and so no question and no right answer.
    answers = answers_of(shown) if shown[0].record else [Answers("", None, None)] * 2
    return {
        "set": name,
        "row": row,
        "record": shown[0].record,
        "question": answers[0].question,
        "target": answers[0].target,
        "sides": [
            {
                "label": label,
                "score": score,
                "given": answer.given,
                "session": session.session,
                "sample": session.sample,
                "attempt": session.draft.model_dump(),
            }
            for label, score, answer, session in zip(comparison.labels, scores, answers, shown, strict=True)
        ],
    }


def _refined(session: SessionRecord) -> SessionRecord:
    return session.model_copy(update={"draft": session.refined})


def _reward(session: SessionRecord) -> float:
    return session.draft.reward or 0.0
