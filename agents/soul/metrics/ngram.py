"""Token F1, and BLEU and ROUGE-L of a text against one reference with the values in CoSER's published evaluation files.

Those files (github.com/Neph0s/CoSER, exp/evaluation) have NLTK's BLEU, which `bleu` calls, and a ROUGE-L that is a
plain longest common subsequence of words. The code beside them (gca_evaluation/utils.py) calls the package `rouge`,
whose version 1.0.1 counts each word once, sentence by sentence, and gives up to twice that value.
"""

import re
import string
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

# English abbreviations whose full stop does not end a sentence. NLTK's own list is part of a trained model that must be
# downloaded; this one covers those in novels.
_ABBREVIATIONS = "capt col dr esq etc gen hon jr lt maj messrs mlle mme mr mrs ms no prof rev sgt sr st vs".split()
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
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
    from nltk.tokenize import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types.update(_ABBREVIATIONS)
    return PunktSentenceTokenizer(parameters), NLTKWordTokenizer()


def rouge_l(text: str, reference: str) -> float:
    """ROUGE-L F1 in [0, 1]: the longest common subsequence of the two texts' words, upper and lower case distinguished.

    A word is what stands between white space, with its punctuation.
    """
    actual, wanted = text.split(), reference.split()
    return 2 * _common_length(actual, wanted) / (len(actual) + len(wanted)) if actual or wanted else 0.0


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of a longest common subsequence.

    The algorithm is bit-parallel (Hyyrö, 2004): one integer stands for a row of the usual table, and the length is the
    number of zeros in the last row.
    """
    places: dict[str, int] = {}
    for position, word in enumerate(second):
        places[word] = places.get(word, 0) | 1 << position
    full = row = (1 << len(second)) - 1
    for word in first:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(second) - row.bit_count()


def normalized_tokens(text: str) -> list[str]:
    """Lower-case words without punctuation and articles, normalised as in SQuAD v1.1."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def token_f1(prediction: str, gold: str) -> float:
    """SQuAD token F1 in [0, 1] (Rajpurkar et al., 2016): 1 if both texts are empty, 0 if only one of them is."""
    predicted, wanted = normalized_tokens(prediction), normalized_tokens(gold)
    if not predicted or not wanted:
        return float(predicted == wanted)
    return 2 * (Counter(predicted) & Counter(wanted)).total() / (len(predicted) + len(wanted))
