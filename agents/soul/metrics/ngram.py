"""BLEU and ROUGE-L of a text against one reference, equal to the packages that the published numbers come from.

CoSER's public code (github.com/Neph0s/CoSER, gca_evaluation/utils.py) computes BLEU with NLTK and ROUGE-L with the
package `rouge`. Other implementations give other values, so BLEU here calls NLTK, and ROUGE-L does what `rouge` 1.0.1
does: it counts each word once, splits sentences at full stops only, and keeps case (Lin's measure does none of this).
"""

import warnings
from collections.abc import Sequence
from functools import cache

from nltk.tokenize import NLTKWordTokenizer
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
from nltk.translate.bleu_score import sentence_bleu

# English abbreviations whose full stop does not end a sentence. NLTK's own list is part of a trained model that must be
# downloaded; this one covers what novels use.
_ABBREVIATIONS = "capt col dr esq etc gen hon jr lt maj messrs mlle mme mr mrs ms no prof rev sgt sr st vs".split()
_NOTHING = 1e-100  # NLTK gives about 1e-78 or less where an order of n-grams has no match


def bleu(text: str, reference: str) -> float:
    """BLEU-4 in [0, 1]: NLTK 3's `sentence_bleu` (no smoothing) over the lower-cased tokens of its `word_tokenize`.

    It is 0 where the two texts have no four tokens in a row in common. The one difference from `word_tokenize`:
    sentences end where Punkt says so with a list of abbreviations in place of its trained model. Without any list a
    real scene's value moves by 0.02 at most.
    """
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
def _tokenizers() -> tuple[PunktSentenceTokenizer, NLTKWordTokenizer]:
    parameters = PunktParameters()
    parameters.abbrev_types.update(_ABBREVIATIONS)
    return PunktSentenceTokenizer(parameters), NLTKWordTokenizer()


def rouge_l(text: str, reference: str) -> float:
    """ROUGE-L F1 in [0, 1], as the package `rouge` 1.0.1 computes it (`Rouge().get_scores(...)["rouge-l"]["f"]`).

    The values are those of the package wherever it works (the tests compare them). The package itself recurses once for
    each word, so it fails on a sentence of some hundred words, which a policy may write at any time.
    """
    said, wanted = _sentences(text), _sentences(reference)
    found = {word for sentence in wanted for other in said for word in _common_subsequence(sentence, other)}
    if not found:
        return 0.0
    precision, recall = (len(found) / len({word for words in side for word in words}) for side in (said, wanted))
    return 2 * precision * recall / (precision + recall + 1e-8)


def _sentences(text: str) -> list[list[str]]:
    """The words of each sentence. (A stretch of blanks is a sentence of one empty word, as in the package.)"""
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """A longest common subsequence, backwards: of several, the one that the package `rouge` finds.

    Bit-parallel (Hyyrö, 2004): one row of the usual table is one integer. The length of the longest subsequence of
    `first[:i]` and `second[:j]` is the number of zeros among the lowest j bits of row i.
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

    found: list[str] = []
    i, j = len(first), len(second)
    while i and j:
        if first[i - 1] == second[j - 1]:
            found.append(first[i - 1])
            i, j = i - 1, j - 1
        elif length(i - 1, j) > length(i, j - 1):
            i -= 1
        else:
            j -= 1
    return found
