"""Token overlap of two texts."""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_tokens(text: str) -> list[str]:
    """Lower-case words without punctuation and articles, normalised as in SQuAD v1.1."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def token_f1(prediction: str, gold: str) -> float:
    """SQuAD token F1 in [0, 1] (Rajpurkar et al., 2016): 1 if both texts are empty, 0 if only one of them is."""
    predicted, wanted = normalized_tokens(prediction), normalized_tokens(gold)
    if not predicted or not wanted:
        return float(predicted == wanted)
    return f1_of_counts(Counter(predicted), Counter(wanted))


def f1_of_counts(predicted: Counter[str], wanted: Counter[str]) -> float:
    """The F1 of two bags of words, at least one of which is not empty."""
    return 2 * (predicted & wanted).total() / (predicted.total() + wanted.total())
