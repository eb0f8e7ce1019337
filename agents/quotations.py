"""Finding what a text quotes of a question's options: runs of words that belong to one option alone.

A quotation of most of an option names it as surely as its letter does. An option is compared by runs of words that make
up a large part of it (60 percent, five words at most). A run that the question, its context or another option holds too
tells nothing about the option and may be said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from agents.judge.untrusted import UNSPACED

Span = tuple[int, int]
SHARE = 0.6  # of an option's words that make a quotation
MOST = 0.75  # of an option's words: a quotation even where it is made of words such as "he does not"
LONGEST_RUN, SHORTEST_RUN = 5, 3  # words; an option of one or two words is a secret as a whole
LONGEST_RUN_UNSPACED = 8  # characters, in scripts that set no blanks between words

_WORD = re.compile(rf"{UNSPACED.pattern}|[^\W_]+(?:['\u2019][^\W_]+)*")
# Runs of these words alone say nothing about anything.
_EMPTY = frozenset(
    "a an and are as at be been but by did do does for from had has have he her hers him his i if in into is it its me "
    "my no not of on or our she so than that the their them then there they this to was we were what when where which "
    "who will with would you your".split()
)


@dataclass(frozen=True)
class Choices:
    """The lettered options of a question, as the leak guard needs them.

    Attributes:
        options: letter -> text, "" where it is unknown.
        prompt: all that the policy sees, options included.
    """

    options: Mapping[str, str]
    prompt: str

    @cached_property
    def surroundings(self) -> str:
        """What the policy sees besides the options."""
        text = self.prompt
        for option in sorted(self.options.values(), key=len, reverse=True):
            if len(_words(option)) >= SHORTEST_RUN:
                text = text.replace(option, "\n")
        return text

    @cached_property
    def _around(self) -> str:
        return self.surroundings.casefold().replace("\u2019", "'")

    @cached_property
    def _words_of(self) -> dict[str, list[str]]:
        return {letter: [word for word, _ in _words(text)] for letter, text in self.options.items()}

    def quotations(self, text: str) -> list[Span]:
        """The places of a text that quote an option, from left to right, none overlapping another."""
        words = _words(text)
        starts: dict[int, dict[tuple[str, ...], list[int]]] = {}
        spans: list[Span] = []
        for letter, option in self._words_of.items():
            size = _run_length(option)
            if size > len(option):
                continue
            if size not in starts:
                starts[size] = _starts([word for word, _ in words], size)
            for first, last in _common_runs(option, starts[size], size):
                run = tuple(word for word, _ in words[first : last + 1])
                if self._tells(run, letter) or any(self._tells(part, letter) for part in _runs(run, size)):
                    spans.append((words[first][1][0], words[last][1][1]))
        return merged(spans)

    def _tells(self, run: tuple[str, ...], letter: str) -> bool:
        """Whether a run of words points at this option: nothing else that the policy sees holds it."""
        if _EMPTY.issuperset(run) and len(run) < MOST * len(self._words_of[letter]):
            return False
        others = (words for other, words in self._words_of.items() if other != letter)
        if any(run in set(_runs(words, len(run))) for words in others):
            return False
        around = self._around
        if not all(word in around for word in run):
            return True
        between = r"[\W_]*" if UNSPACED.match(run[0]) else r"[\W_]+"
        pattern = between.join(map(re.escape, run))
        return re.search(rf"(?<![^\W_]){pattern}(?![^\W_])", around) is None


def merged(spans: Sequence[Span]) -> list[Span]:
    """Spans from left to right; those that overlap are one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _words(text: str) -> list[tuple[str, Span]]:
    """The words of a text without case, each with its place."""
    return [(match.group().casefold().replace("\u2019", "'"), match.span()) for match in _WORD.finditer(text)]


def _run_length(option: Sequence[str]) -> int:
    """How many words of an option in a row are a quotation."""
    unspaced = sum(UNSPACED.match(word) is not None for word in option) > len(option) / 2
    longest = LONGEST_RUN_UNSPACED if unspaced else LONGEST_RUN
    return min(longest, max(SHORTEST_RUN, math.ceil(SHARE * len(option))))


def _runs(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def _starts(words: Sequence[str], size: int) -> dict[tuple[str, ...], list[int]]:
    """Run of words -> where it begins."""
    starts: dict[tuple[str, ...], list[int]] = {}
    for start, run in enumerate(_runs(words, size)):
        starts.setdefault(run, []).append(start)
    return starts


def _common_runs(option: Sequence[str], starts: Mapping[tuple[str, ...], Sequence[int]], size: int) -> Iterator[Span]:
    """First and last word, in the text, of each run that text and option share: as long as it goes, `size` at least."""
    shared = {(place - begin, place) for begin, run in enumerate(_runs(option, size)) for place in starts.get(run, ())}
    for offset, place in sorted(shared):
        if (offset, place - 1) not in shared:
            last = place
            while (offset, last + 1) in shared:
                last += 1
            yield place, last + size - 1
