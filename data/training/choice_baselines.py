"""How many multiple-choice questions can be answered without solving them.

Three baselines look at a finished file. Each picks an option, and a tie counts as one share of a guess:

    options_only      naive Bayes over an option's words, its place and the rank of its length; it never sees the
                      question, and is trained on four fifths of the groups and tested on the rest
    longest_option    the option with the most characters
    lexical_overlap   the option with the largest share of its content words in the rest of the prompt

A baseline that beats chance by more than ten points means that a policy can be rewarded for a shortcut.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from soul.metrics.lexical import content_words, words
from soul.one_turn import LetterTask
from soul.rows.overlap import group_keys
from soul.rows.task_files import TaskRow
from soul.tasks.mistakes import Mistakes, MistakesRow
from soul.tasks.paratomi import ParaToMiRow

FOLDS = 5
TOO_EASY = 0.10  # above chance
FEWEST = 50  # questions; fewer say nothing


@dataclass(frozen=True)
class Question:
    """What the baselines know of a question.

    Attributes:
        options: their texts.
        right: the places of the right options.
        overlap: for each option, the share of its content words that the rest of the prompt has.
        group: a number that all questions of one group share.
    """

    options: tuple[str, ...]
    right: frozenset[int]
    overlap: tuple[float, ...]
    group: int


def question_of(row: TaskRow) -> Question | None:
    """The question of a row; None if it has no options to choose from."""
    options, right = _options(row)
    if len(options) < 2 or not all(options) or not right:
        return None
    prompt = " ".join(message["content"] for message in row.task.prompt(row.row))
    # The prompt lists the options: the rest is what remains when each of their words is taken away once.
    rest = Counter(words(prompt)) - Counter(word for option in options for word in words(option))
    shares = []
    for option in options:
        own = set(content_words(option))
        shares.append(sum(word in rest for word in own) / len(own) if own else 0.0)
    keys = group_keys(row)
    return Question(tuple(options), right, tuple(shares), zlib.crc32(str(keys[0]).encode()) if keys else row.number)


def _options(row: TaskRow) -> tuple[list[str], frozenset[int]]:
    """The texts of a row's options, and the places of the right ones."""
    task, record = row.task, row.row
    if isinstance(record, ParaToMiRow):  # its places are no lettered options
        return record.cands, frozenset({record.cands.index(record.correct_answer)} if record.cands else ())
    choices = task.choices(record)
    if choices is None:
        return [], frozenset()
    letters = list(choices.options)
    if isinstance(task, Mistakes) and isinstance(record, MistakesRow):
        gold = set(task.accepted(record))
    elif isinstance(task, LetterTask):
        gold = {task.gold(record)}
    else:
        gold = {(task.target(record) or "").partition(".")[0]}
    return list(choices.options.values()), frozenset(place for place, letter in enumerate(letters) if letter in gold)


def baselines(questions: Sequence[Question]) -> dict[str, float]:
    """Accuracy of guessing ("chance") and of each baseline, from 0 to 1."""
    scores: dict[str, Callable[[Question], Sequence[float]]] = {
        "longest_option": lambda question: [float(len(option)) for option in question.options],
        "lexical_overlap": lambda question: question.overlap,
    }
    found = {name: _mean([_accuracy(one, score(one)) for one in questions]) for name, score in scores.items()}
    chance = _mean([len(one.right) / len(one.options) for one in questions])
    return {"chance": chance, "options_only": _options_only(questions), **found}


def warnings(found: dict[str, float], count: int) -> list[str]:
    """A line for each baseline that beats chance by too much."""
    if count < FEWEST:
        return []
    chance = found["chance"]
    return [
        f"WARNING: {name} answers {share:.0%} of the questions (chance: {chance:.0%})"
        for name, share in found.items()
        if name != "chance" and share > chance + TOO_EASY
    ]


def _options_only(questions: Sequence[Question]) -> float:
    seen = [(one, _features(one)) for one in questions]
    hits = []
    for fold in range(FOLDS):
        weights = _weights([pair for pair in seen if pair[0].group % FOLDS != fold])
        hits += [
            _accuracy(one, [sum(weights.get(feature, 0.0) for feature in option) for option in features])
            for one, features in seen
            if one.group % FOLDS == fold
        ]
    return _mean(hits)


def _features(question: Question) -> list[set[str]]:
    """For each option: its words, its place and the rank of its length among the others."""
    ranked = sorted(question.options, key=len)
    return [
        {*words(option), f"#place {place} of {len(question.options)}", f"#length {ranked.index(option)}"}
        for place, option in enumerate(question.options)
    ]


def _weights(seen: Sequence[tuple[Question, list[set[str]]]]) -> dict[str, float]:
    """Feature -> how much more often right options have it than wrong ones (log-odds, add-one smoothing)."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    totals = [1, 1]
    for question, options in seen:
        for place, features in enumerate(options):
            is_right = place in question.right
            (right if is_right else wrong).update(features)
            totals[is_right] += 1
    return {
        feature: math.log((right[feature] + 1) / (totals[1] + 2)) - math.log((wrong[feature] + 1) / (totals[0] + 2))
        for feature in {*right, *wrong}
    }


def _accuracy(question: Question, scores: Sequence[float]) -> float:
    """The chance that one of the best-scored options, drawn at random, is right."""
    best = [place for place, score in enumerate(scores) if score == max(scores)]
    return len(question.right.intersection(best)) / len(best)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
