"""BLEU and ROUGE-L of a text against one reference, with the same values as the packages behind the published numbers.

CoSER's public code (github.com/Neph0s/CoSER, gca_evaluation/utils.py) computes BLEU with NLTK and ROUGE-L with the
package `rouge`. Other implementations give other values, so `bleu` calls NLTK and `rouge_l` follows `rouge` 1.0.1. That
package differs from the ROUGE-L of Lin (2004) in three ways: it counts each word once, splits sentences only at full
stops, and distinguishes upper and lower case.
"""

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

# English abbreviations whose full stop does not end a sentence. NLTK's own list is part of a trained model that must be
# downloaded; this one covers those in novels.
_ABBREVIATIONS = "capt col dr esq etc gen hon jr lt maj messrs mlle mme mr mrs ms no prof rev sgt sr st vs".split()
_NOTHING = 1e-100  # treat smaller values as 0: NLTK returns a tiny number if n-grams of some order have no match


def bleu(text: str, reference: str) -> float:
    """BLEU-4 in [0, 1]: NLTK 3's `sentence_bleu` (no smoothing) over the lower-cased tokens of its `word_tokenize`.

    It is 0 if the two texts share no four consecutive tokens. There is one difference from `word_tokenize`: Punkt
    splits sentences with a list of abbreviations instead of its trained model. Even without a list, the value of a real
    scene changes by at most 0.02.
    """
    from nltk.translate.bleu_score import sentence_bleu  # not above: NLTK takes a second of CPU time

    tokens, wanted = _tokens(text), _tokens(reference)
    if not tokens or not wanted:
        return 0.0
    with warnings.catch_warnings():  # NLTK warns of every text without a common 4-gram
        warnings.simplefilter("ignore")
        score = float(sentence_bleu([wanted], tokens))
    return score if score > _NOTHING else 0.0


def _tokens(text: str) -> list[str]:
    sentences, words = _tokenizers()
    return [token for sentence in sentences.tokenize(text.lower()) for token in words.tokenize(sentence)]


@cache
def _tokenizers() -> tuple[Any, Any]:
    """NLTK's tokenizers of sentences and of words."""
    from nltk.tokenize import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types.update(_ABBREVIATIONS)
    return PunktSentenceTokenizer(parameters), NLTKWordTokenizer()


def rouge_l(text: str, reference: str) -> float:
    """ROUGE-L F1 in [0, 1], as the package `rouge` 1.0.1 computes it (`Rouge().get_scores(...)["rouge-l"]["f"]`).

    The values equal those of the package wherever it works (the tests compare them). The package itself recurses once
    for each word, so it fails on a sentence of a few hundred words, which a policy may write at any time.
    """
    actual, wanted = _sentences(text), _sentences(reference)
    common = {word for sentence in wanted for other in actual for word in _common_subsequence(sentence, other)}
    if not common:
        return 0.0
    precision, recall = (len(common) / len({word for words in side for word in words}) for side in (actual, wanted))
    return 2 * precision * recall / (precision + recall + 1e-8)


def _sentences(text: str) -> list[list[str]]:
    """The words of each sentence. (As in the package, white space alone is a sentence with one empty word.)"""
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """A longest common subsequence, backwards; if there are several, the one that the package `rouge` finds.

    The algorithm is bit-parallel (Hyyrö, 2004): one integer stands for a row of the usual table. The length of the
    longest common subsequence of `first[:i]` and `second[:j]` is the number of zeros in the lowest j bits of row i.
    """
    places: dict[str, int] = {}
    for position, word in enumerate(second):
        places[word] = places.get(word, 0) | 1 << position
    if not places.keys() & set(first):
        return []
    full = (1 << len(second)) - 1
    rows = [full]
    for word in first:
        matched = rows[-1] & places.get(word, 0)
        rows.append(((rows[-1] + matched) | (rows[-1] - matched)) & full)

    def length(i: int, j: int) -> int:
        return j - (rows[i] & ((1 << j) - 1)).bit_count()

    subsequence: list[str] = []
    i, j = len(first), len(second)
    while i and j:
        if first[i - 1] == second[j - 1]:
            subsequence.append(first[i - 1])
            i, j = i - 1, j - 1
        elif length(i - 1, j) > length(i, j - 1):
            i -= 1
        else:
            j -= 1
    return subsequence
