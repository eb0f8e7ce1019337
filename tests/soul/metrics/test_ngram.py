"""BLEU against NLTK, ROUGE-L against the usual table, and both against values worked by hand."""

import json
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import sentence_bleu

from soul.metrics import ngram
from soul.metrics.ngram import bleu, rouge_l
from tests.soul.samples import source

PIECES = st.sampled_from([*"a b c d A".split(), "a,", ".", "..", "\n", "b."])
texts = st.lists(PIECES, max_size=14).map(" ".join)


def by_table(text, reference):
    first, second = text.split(), reference.split()
    lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, word in enumerate(first):
        for j, other in enumerate(second):
            longest = max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if word == other else longest
    return 2 * lengths[-1][-1] / max(1, len(first) + len(second))


def scenes():
    """The real conversations, each as an actor would say it (no names) and as the reference stands (with names)."""
    records = json.loads(source("coser", "test_set_public_domain.json").read_text())
    clean = [[(line["character"], re.sub(r"\[.*?\]", "", line["message"])) for line in r["dialogues"]] for r in records]
    played = ["\n\n".join(text for _, text in lines) for lines in clean]
    return played, ["\n\n".join(f"{name}: {text}" for name, text in lines) for lines in clean]


@settings(max_examples=200, deadline=None)
@given(text=texts, reference=texts)
def test_rouge_l_is_the_longest_common_subsequence_of_words(text, reference):
    assert rouge_l(text, reference) == pytest.approx(by_table(text, reference))


def test_bleu_is_nltks_on_real_scenes():
    played, references = scenes()
    for text, reference in zip(played, [*references[1:], references[0]], strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = sentence_bleu([ngram._tokens(reference)], ngram._tokens(text))
        assert bleu(text, reference) == (expected if expected > 1e-100 else 0.0)
    assert all(bleu(text, reference) > 0.6 for text, reference in zip(played, references, strict=True))


def test_tokens_are_those_of_nltks_word_tokenize():
    """Worked by hand from NLTK's documentation: Treebank tokens, sentence by sentence, lower case."""
    text = "Mr. Bennet can't wait... \"Go,\" he said. She didn't."
    expected = ["mr.", "bennet", "ca", "n't", "wait", "...", "``", "go", ",", "''"]
    assert ngram._tokens(text) == [*expected, "he", "said", ".", "she", "did", "n't", "."]
