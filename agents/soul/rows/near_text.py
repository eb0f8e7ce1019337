"""Find texts that are nearly the same: they differ only in spaces, case, punctuation or a few words.

Two texts are near if they share at least this part of their pairs of neighbouring words (Jaccard): pairs that both
have, divided by pairs that either has. With the default of 0.6, a text of nine words with one changed word is still
found. Shorter texts must have the same words: in a short question, one other word changes what it asks ("where do bees
live", "where do bears live").

The share was chosen on public records: of 76 Hi-ToM stories, 14 ClariQ, 103 Arena and 110 OASST1 openings none is near
another one, of 2,385 questions of NQ-open 17 are ("who won the first/fifth season of ..."), of 775 of CommonsenseQA 6.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable

NEAR = 0.6
LEAST_WORDS = 9
_TOKENS = re.compile(r"[^\W_]+|[^\w\s]")
_EPSILON = 1e-9

Pair = tuple[str, str]


def words(text: str) -> list[str]:
    """The words of a text in lower case, and its mathematical signs: "12 + 5" and "12 = 5" differ."""
    tokens = _TOKENS.findall(unicodedata.normalize("NFKC", text).casefold())
    return [token for token in tokens if token[0].isalnum() or unicodedata.category(token) == "Sm"]


class NearTexts:
    """Texts in an index that finds those near to another text without comparing it with each."""

    def __init__(self, texts: Iterable[str], share: float = NEAR) -> None:
        """Build the index.

        Args:
            share: of the word pairs that two near texts have in common, above 0 to 1; 1: only the same words are near.
        """
        self._share = share
        self._same = {tuple(text_words): text for text in texts if (text_words := words(text))}
        long = {text_words: text for text_words, text in self._same.items() if self._comparable(text_words)}
        self._texts = list(long.values())
        self._pairs = [frozenset(zip(text_words, text_words[1:], strict=False)) for text_words in long]
        self._counts = Counter(pair for pairs in self._pairs for pair in pairs)
        self._places: defaultdict[Pair, list[int]] = defaultdict(list)
        for place, pairs in enumerate(self._pairs):
            for pair in self._rarest(pairs):
                self._places[pair].append(place)

    def find(self, text: str) -> str | None:
        """A text of the index that is near to this one; None if there is none."""
        text_words = tuple(words(text))
        if text_words in self._same:
            return self._same[text_words]
        if not self._comparable(text_words):
            return None
        pairs = frozenset(zip(text_words, text_words[1:], strict=False))
        candidates = {place for pair in self._rarest(pairs) for place in self._places.get(pair, ())}
        for place in sorted(candidates):
            other = self._pairs[place]
            if len(pairs & other) >= self._share * len(pairs | other) - _EPSILON:
                return self._texts[place]
        return None

    def _comparable(self, text_words: tuple[str, ...]) -> bool:
        return self._share < 1 and len(text_words) >= LEAST_WORDS

    def _rarest(self, pairs: frozenset[Pair]) -> list[Pair]:
        """So many of the rarest pairs that a near text must have one of them among its own rarest: sharing `share` of
        all pairs leaves room for fewer missing ones than that."""
        count = len(pairs) - math.ceil(self._share * len(pairs) - _EPSILON) + 1
        return sorted(pairs, key=lambda pair: (self._counts[pair], pair))[:count]
