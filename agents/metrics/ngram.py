"""N-gram overlap of a text with one reference: BLEU and ROUGE-L."""

import math
import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def sentence_bleu(text: str, reference: str, max_order: int = 4) -> float:
    """BLEU in [0, 1] (Papineni et al., 2002) on lower-cased words and punctuation marks.

    Smoothing: the k-th order without a match counts as 1 / 2^k matches (mteval's, "exp" of sacreBLEU, method 3 of Chen
    and Cherry, 2014). A text with fewer tokens than `max_order` is scored on the orders that it has. Without one common
    token the score is 0.
    """
    tokens, wanted = (_WORD_OR_MARK.findall(side.lower()) for side in (text, reference))
    log_precisions: list[float] = []
    halving = 1.0
    for order in range(1, min(max_order, len(tokens)) + 1):
        total = len(tokens) - order + 1
        matches = float(sum((_ngrams(tokens, order) & _ngrams(wanted, order)).values()))
        if not matches:
            if order == 1:
                return 0.0
            halving /= 2
            matches = halving
        log_precisions.append(math.log(matches / total))
    if not log_precisions:
        return 0.0
    brevity = min(0.0, 1 - len(wanted) / len(tokens))
    return math.exp(brevity + math.fsum(log_precisions) / len(log_precisions))


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def rouge_l(text: str, reference: str) -> float:
    """ROUGE-L F1 in [0, 1] (Lin, 2004): the longest common subsequence of the lower-cased words, over both lengths."""
    words, wanted = (_WORD.findall(side.lower()) for side in (text, reference))
    common = longest_common_subsequence(words, wanted)
    return 2 * common / (len(words) + len(wanted)) if common else 0.0


def longest_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence.

    Bit-parallel (Hyyrö, 2004): one column of the usual table is one integer, so that a policy that talks without end
    does not hold up the process for half a minute.
    """
    places: dict[str, int] = {}
    for position, item in enumerate(second):
        places[item] = places.get(item, 0) | 1 << position
    full = (1 << len(second)) - 1
    column = full  # a zero bit: here the length grows by one
    for item in first:
        matched = column & places.get(item, 0)
        column = ((column + matched) | (column - matched)) & full
    return len(second) - column.bit_count()
