"""Lexical diversity of texts (MATTR, HD-D and Yule's K), and how similar two writers are in it.

The measures take any tokens. MirrorBench's are GPT-4o's (`gpt4o_tokens`), over all turns of a writer,
joined by spaces; punctuation and emoji are tokens too. `words` is for everything else: texts are normalised to NFC and
lower case, curly apostrophes become straight ones, and a word is a run of letters and digits that may contain hyphens
and apostrophes ("don't", "8-year-old"). In a script without spaces, a whole run of letters counts as one word.
"""

import math
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, NamedTuple

WINDOW = 50  # tokens in the window of MATTR
SAMPLE = 42  # tokens in a sample of HD-D
MIN_TOKENS = 5  # fewer tokens are too few to measure diversity (MirrorBench's `min_tokens`)
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")

# English function words and greetings, which say nothing about what somebody wants.
FUNCTION_WORDS = frozenset(
    """
    a an the this that these those such same other another each every both all any some no none few many much more most
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves one who whom whose which what when where why how there here
    am is are was were be been being do does did doing done have has had having can could may might must shall should
    will would ought need dare and or but nor so yet if then than because since though although while whereas unless
    until whether as of at by for with without about against between among into onto through during before after above
    below over under to from up down in out on off again further once not only own just too very also even still ever
    never now please hello hi hey i'm i've i'd i'll you're you've you'd you'll he's she's it's we're we've we'd we'll
    they're they've they'd they'll that's there's what's who's how's where's let's isn't aren't wasn't weren't don't
    doesn't didn't haven't hasn't hadn't can't cannot couldn't won't wouldn't shouldn't mustn't
    """.split()
)


def gpt4o_tokens(text: str) -> list[int]:
    """GPT-4o's tokens (`o200k_base`), which MirrorBench counts; control tokens in the text are ordinary text."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return list(_encoding().encode(whole, disallowed_special=()))


@cache
def _encoding() -> Any:
    import bpe_openai  # it carries the vocabulary, which tiktoken would download; loading it takes time

    return bpe_openai.get_encoding("o200k_base")


def words(text: str) -> list[str]:
    """The words of a text, in order and in lower case."""
    return _WORD.findall(unicodedata.normalize("NFC", text).lower().replace("\u2019", "'"))


def content_words(text: str) -> list[str]:
    """The words of a text except English function words."""
    return [word for word in words(text) if word not in FUNCTION_WORDS]


def mattr(tokens: Sequence[Hashable], window: int = WINDOW) -> float:
    """Moving-average type-token ratio (Covington and McFall, 2010), in (0, 1].

    For a text shorter than the window it is the plain type-token ratio.
    """
    window = min(window, len(tokens))
    counts = Counter(tokens[:window])
    types = total = len(counts)
    for leaving, entering in zip(tokens, tokens[window:], strict=False):
        counts[leaving] -= 1
        types -= counts[leaving] == 0
        types += counts[entering] == 0
        counts[entering] += 1
        total += types
    return total / (window * (len(tokens) - window + 1))


def hdd(tokens: Sequence[Hashable], sample: int = SAMPLE) -> float:
    """HD-D (McCarthy and Jarvis, 2007), in (0, 1]: the expected type-token ratio of `sample` tokens drawn without
    replacement.

    For a text with fewer tokens it is the plain type-token ratio.
    """
    sample = min(sample, len(tokens))
    draws = math.comb(len(tokens), sample)
    # Tokens with the same frequency have the same chance of being drawn at least once.
    by_frequency = Counter(Counter(tokens).values())
    expected = sum(
        types * (1 - math.comb(len(tokens) - frequency, sample) / draws) for frequency, types in by_frequency.items()
    )
    return expected / sample


def yules_k(tokens: Sequence[Hashable]) -> float:
    """Yule's K (1944): how much a text repeats its tokens; 0 if no token appears twice."""
    squares = sum(count * count for count in Counter(tokens).values())
    return 1e4 * (squares - len(tokens)) / len(tokens) ** 2


class Lexis(NamedTuple):
    """One number for each of the three measures: the values of a text, or means or deviations over many texts."""

    mattr: float
    hdd: float
    yules_k: float


def lexis(turns: Sequence[str]) -> Lexis | None:
    """The measures of all turns of one writer, taken as one text; None if there are no tokens."""
    return _measures(gpt4o_tokens(" ".join(turns)))


def _measures(tokens: Sequence[Hashable]) -> Lexis | None:
    return Lexis(mattr(tokens), hdd(tokens), yules_k(tokens)) if tokens else None


def likeness(one: Lexis, other: Lexis, deviation: Lexis) -> float:
    """Lexical similarity of two writers, in [0, 1]: the mean over the three measures.

    A measure scores 1 if they differ by at most one standard deviation of human writers. The score then falls linearly
    to 0 at three standard deviations.
    """
    distances = [abs(a - b) / unit for a, b, unit in zip(one, other, deviation, strict=True)]
    return statistics.fmean(min(1.0, max(0.0, (3 - distance) / 2)) for distance in distances)


def lexical_score(turns: Sequence[str], human: Sequence[str], deviation: Lexis) -> float | None:
    """Lexical similarity of a writer to a human, in [0, 1].

    A text that repeats no token has a diversity of 1, and a text of one or two tokens hardly ever repeats one. So a
    short text gets only a part of `likeness`. The full value needs at least half as many tokens as the human wrote (at
    most half of `WINDOW`), and at least `MIN_TOKENS`. Fewer tokens get a proportional share, so one token gets at most
    1 / `MIN_TOKENS`.

    Returns:
        None if the human wrote fewer than `MIN_TOKENS` tokens, which is too little for a comparison.
    """
    own_tokens, human_tokens = (gpt4o_tokens(" ".join(said)) for said in (turns, human))
    own, other = _measures(own_tokens), _measures(human_tokens)
    if other is None or len(human_tokens) < MIN_TOKENS:
        return None
    if own is None:
        return 0.0
    needed = max(MIN_TOKENS, min(len(human_tokens), WINDOW) / 2)
    return likeness(own, other, deviation) * min(1.0, len(own_tokens) / needed)
