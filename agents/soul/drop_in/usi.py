"""The User-Sim Index (USI): how near a simulated user of tau-bench's tasks is to people, from 0 to 100.

Zhou et al., "Mind the Sim2Real Gap in User Simulation for Agentic Tasks" (arXiv 2603.11245); the definition is
agents/tau_usi of github.com/sunnweiwei/OdysSim, commit df47a21. The index is the mean of five parts. Four compare
measures of the user's turns by the coefficient of Dice: how the user talks, informs, asks, and reacts to errors. The
fifth is 100 less the calibration error: how far the agent's success with the simulator is from that with people,
within five bins of the tasks' difficulty. (Their sixth part needs surveys, and they leave it out without them.)

Each batch of people, one conversation per task, is compared with the tasks that the simulator played too, and the mean
over batches counts. The phrases and the difficulties are read from those files: nothing of them is copied here.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from soul.drop_in.audit import BadTranscript
from soul.drop_in.faults import Transcript
from soul.errors import BadSettings
from soul.metrics.intervals import Estimate, centered, score_of_rows

PARTS = ("USI: talks", "USI: informs", "USI: asks", "USI: reacts", "USI: success", "USI")
_ENDS = (7, 11, 16)  # of the measures of the first three parts
_HARDER = (0.2, 0.4, 0.6, 0.8)  # success rates, the ends of the bins of difficulty
_SHORT = 3  # words
_REPEATS = 10  # times that a user who does not loop may say three words in a row
_QUESTIONS = ("PUSHBACK_Q_RE", "CLARIFY_Q_RE", "INFO_Q_RE")  # a turn is of the first kind that it has words of
Phrases = Mapping[str, re.Pattern[str]]


def definition(folder: Path) -> tuple[Phrases, Mapping[str, float]]:
    """The phrases, by their names in utils.py (which is not run), and the rate of success on each task."""
    phrases: dict[str, re.Pattern[str]] = {}
    try:
        for line in ast.parse((folder / "utils.py").read_text(encoding="utf-8")).body:
            match line:
                case ast.Assign([ast.Name(name)], ast.Call(args=[ast.Constant(str(phrase)), *flags])):
                    phrases[name] = re.compile(phrase, re.S if flags else 0)
        _measures(["all phrases are there"], phrases)
        return phrases, json.loads((folder / "tau_usi_difficulty.json").read_text(encoding="utf-8"))["difficulty"]
    except (OSError, ValueError, SyntaxError, LookupError, TypeError, re.error) as error:
        raise BadSettings(f"--usi {folder}: {error!r}. Pass agents/tau_usi of a clone of sunnweiwei/OdysSim.") from None


def usi(
    simulated: Sequence[Transcript], people: Sequence[Transcript], folder: Path
) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    """Compute the parts and the index, and those of pairs of batches of people, if there are two batches."""
    phrases, difficulty = definition(folder)
    tasks = sorted({talk.task for talk in people} & difficulty.keys())
    bins = np.eye(len(_HARDER) + 1)[np.searchsorted(_HARDER, [difficulty[task] for task in tasks], side="right")]
    runs, batches = (_by_run(side, tasks, phrases) for side in (simulated, people))
    if not any((run[:, 0] * batch[:, 0]).any() for run in runs for batch in batches):
        needed = "an `instance_id`, such as retail_12, and a `reward`; tau2's results.json has both"
        raise BadTranscript(f"The two sides have no task of the USI in common. A transcript needs {needed}.")

    def part(at: int, weights: Any) -> Any:
        return _score(weights, runs, batches, bins)[:, at]

    once, found = np.ones((1, len(tasks))), {}
    for at, name in enumerate(PARTS):
        estimate = score_of_rows(partial(part, at), float(part(at, once)[0]), len(tasks), "usi", (0.0, 100.0))
        found[name] = centered(estimate)  # resamples are less alike
    pairs = [_score(once, [one], [other], bins)[0] for one, other in combinations(batches, 2)]
    between = zip(PARTS, np.mean(pairs, axis=0), strict=True) if pairs else ()
    return found, {name: Estimate(float(mean), len(pairs), 0.0, None) for name, mean in between}


def _by_run(talks: Sequence[Transcript], tasks: Sequence[str], phrases: Phrases) -> list[Any]:
    """An array for each run or batch, with a line for each task: 1 if it was played, success, and the measures."""
    runs: dict[tuple[str, int], Any] = {}
    for talk in talks:
        turns = [m["content"] for m in talk.messages if m["role"] == "user" and m["content"].strip() != "###STOP###"]
        if turns and talk.reward is not None and talk.task in tasks:
            row, measures = tasks.index(talk.task), [1.0, float(talk.reward > 0), *_measures(turns, phrases)]
            n = 0  # two files may have runs of the same name
            while (run := runs.setdefault((talk.run, n), np.zeros((len(tasks), len(measures)))))[row, 0]:
                n += 1
            run[row] = measures
    return list(runs.values())


def _measures(turns: Sequence[str], phrases: Phrases) -> list[float]:
    """The 19 measures of one user, in the order of the parts."""
    texts = [phrases["_AGENT_MARKUP_RE"].sub("", turn).lower().strip() for turn in turns]
    said = [text.split() for text in texts]
    lengths = [len(words) for words in said]
    mean, threes = fmean(lengths), Counter(three for w in said for three in zip(w, w[1:], w[2:], strict=False))
    kinds = [next((kind for kind in _QUESTIONS if phrases[kind].search(text)), "") for text in texts]
    questions = [fmean(kind == each for kind in kinds) for each in _QUESTIONS]

    def share(name: str) -> float:
        return fmean(bool(phrases[name].search(text)) for text in texts)

    talks = [share("POLITE_PATTERNS"), fmean(n <= _SHORT for n in lengths), share("EMDASH_RE"), share("ACK_ONLY_RE")]
    talks += [pstdev(lengths) / (mean or 1), float(max(threes.values(), default=0) > _REPEATS)]
    confused = float(share("ID_CONFUSE_RE") > 0)  # speaks as the agent does
    ids = fmean(len(phrases["ID_DENSITY_RE"].findall(text)) for text in texts)
    informs = [sum(lengths[:2]) / (sum(lengths) or 1), ids, mean, float(lengths[0])]
    asks = [share("UNCERTAINTY_RE"), share("CERTAINTY_RE"), *questions]
    return [*talks, confused, *informs, *asks, share("EMOTION_PATTERNS"), share("ACCUSATION_RE"), share("PIVOT_RE")]


def _score(weights: Any, runs: Sequence[Any], batches: Sequence[Any], bins: Any) -> Any:
    """PARTS for each line of weights, which say how often each task counts."""
    scores = []
    for batch in batches:
        met = [(weights * run[:, 0] * batch[:, 0], run) for run in runs if (run[:, 0] * batch[:, 0]).any()]
        if not met:
            continue
        one = np.mean([_mean(shared, run[:, 2:]) for shared, run in met], axis=0)
        other = _mean(np.max([shared for shared, _ in met], axis=0), batch[:, 2:])
        alike = np.divide(2 * np.minimum(one, other), one + other, out=np.ones_like(one), where=one + other > 0)
        parts = [100 * part.mean(axis=1) for part in np.split(alike, _ENDS, axis=1)]
        gaps = [np.abs(_mean(shared, bins * (run[:, 1:2] - batch[:, 1:2]))).sum(axis=1) for shared, run in met]
        parts.append(100 * (1 - np.mean(gaps, axis=0)))
        scores.append(np.stack([*parts, np.mean(parts, axis=0)], axis=1))
    return np.mean(scores, axis=0)


def _mean(weights: Any, values: Any) -> Any:
    return weights @ values / np.maximum(weights.sum(axis=1, keepdims=True), 1)
