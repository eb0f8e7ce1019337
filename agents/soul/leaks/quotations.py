"""Find where a text quotes one of a question's options: runs of words that occur in one option only.

Quoting most of an option gives it away as surely as naming its letter. A run of words counts as a quotation if it makes
up a large part of the option: 60 % of its words, or five words. A run that also occurs in the question, in its context
or in another option gives nothing away and is allowed.

`quotable` lists what must not be quoted of a text that a person wrote.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from soul.judge.call.untrusted import UNSPACED

Span = tuple[int, int]
SHARE = 0.6  # this share of an option's words is a quotation
MOST = 0.75  # this share is a quotation even if it consists only of words such as "he does not"
# Five words in a row are always a quotation, fewer than three never. (Options of one or two words are secrets.)
LONGEST_RUN, SHORTEST_RUN = 5, 3
LONGEST_RUN_UNSPACED = 8  # the same in characters, for scripts without spaces between words

RUN_STEP = 3  # a guarded run of words starts at every third word
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026])\s+|\n+")

_WORD = re.compile(rf"{UNSPACED.pattern}|[^\W_]+(?:['\u2019][^\W_]+)*")
# A run that consists only of these words gives nothing away.
_EMPTY = frozenset(
    "a an and are as at be been but by did do does for from had has have he her hers him his i if in into is it its me "
    "my no not of on or our she so than that the their them then there they this to was we were what when where which "
    "who will with would you your".split()
)


@dataclass(frozen=True)
class Choices:
    """The lettered options of a question, as the leak guard needs them.

    Attributes:
        options: letter -> text, "" if it is unknown.
        prompt: everything that the policy sees, including the options.
    """

    options: Mapping[str, str]
    prompt: str

    @cached_property
    def surroundings(self) -> str:
        """The prompt without the options."""
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
        """The spans of a text that quote an option, from left to right, without overlaps."""
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
                if self._tells(run, letter) or any(self._tells(part, letter) for part in runs(run, size)):
                    spans.append((words[first][1][0], words[last][1][1]))
        return merged(spans)

    def _tells(self, run: tuple[str, ...], letter: str) -> bool:
        """Return True if a run of words gives this option away, because it occurs nowhere else in the prompt."""
        if _EMPTY.issuperset(run) and len(run) < MOST * len(self._words_of[letter]):
            return False
        others = (words for other, words in self._words_of.items() if other != letter)
        if any(run in runs(words, len(run)) for words in others):
            return False
        around = self._around
        if not all(word in around for word in run):
            return True
        between = r"[\W_]*" if UNSPACED.match(run[0]) else r"[\W_]+"
        pattern = between.join(map(re.escape, run))
        return re.search(rf"(?<![^\W_]){pattern}(?![^\W_])", around) is None


def quotable(text: str, run: int) -> tuple[str, ...]:
    """The parts of a person's text that a critique must not quote: all of it, its sentences, and runs of `run` words.

    A run starts at every third word, so `run` + 2 words in a row always contain one. Sentences of one to three words
    are left out, because a critique may well say "I agree" by itself.
    """
    sentences = [sentence.strip() for sentence in _SENTENCE_END.split(text) if len(sentence.split()) > 3]
    words = text.split()
    quoted = [" ".join(words[start : start + run]) for start in range(0, max(0, len(words) - run + 1), RUN_STEP)]
    return tuple(dict.fromkeys((text.strip(), *sentences, *quoted)))


def merged(spans: Sequence[Span]) -> list[Span]:
    """The spans from left to right, with overlapping ones joined."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _words(text: str) -> list[tuple[str, Span]]:
    """The casefolded words of a text, each with its span."""
    return [(match.group().casefold().replace("\u2019", "'"), match.span()) for match in _WORD.finditer(text)]


def _run_length(option: Sequence[str]) -> int:
    """Number of consecutive words that count as a quotation of this option."""
    unspaced = sum(UNSPACED.match(word) is not None for word in option) > len(option) / 2
    longest = LONGEST_RUN_UNSPACED if unspaced else LONGEST_RUN
    return min(longest, max(SHORTEST_RUN, math.ceil(SHARE * len(option))))


def runs(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """All runs of `size` consecutive words."""
    return (tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def _starts(words: Sequence[str], size: int) -> dict[tuple[str, ...], list[int]]:
    """Run of words -> the positions where it begins."""
    starts: dict[tuple[str, ...], list[int]] = {}
    for start, run in enumerate(runs(words, size)):
        starts.setdefault(run, []).append(start)
    return starts


def _common_runs(option: Sequence[str], starts: Mapping[tuple[str, ...], Sequence[int]], size: int) -> Iterator[Span]:
    """The maximal runs of at least `size` words that text and option share: the first and last word in the text."""
    shared = {(place - begin, place) for begin, run in enumerate(runs(option, size)) for place in starts.get(run, ())}
    for offset, place in sorted(shared):
        if (offset, place - 1) not in shared:
            last = place
            while (offset, last + 1) in shared:
                last += 1
            yield place, last + size - 1
