"""BLEU and ROUGE-L against hand-worked values and against a second computation that shares no code with them."""

import math
import time
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.metrics.ngram import longest_common_subsequence, rouge_l, sentence_bleu

words = st.lists(st.sampled_from("a b c d".split()), max_size=12)


def lcs_by_definition(first, second):
    @cache
    def best(i, j):
        if i == len(first) or j == len(second):
            return 0
        if first[i] == second[j]:
            return 1 + best(i + 1, j + 1)
        return max(best(i + 1, j), best(i, j + 1))

    return best(0, 0)


def bleu_by_definition(tokens, wanted):
    """Exact fractions; n-grams are counted by taking them away from the reference one by one."""
    product, orders, zeros = Fraction(1), 0, 0
    for order in (1, 2, 3, 4):
        grams = [tokens[i : i + order] for i in range(len(tokens) - order + 1)]
        left = [wanted[i : i + order] for i in range(len(wanted) - order + 1)]
        if not grams:
            break
        matches = Fraction(0)
        for gram in grams:
            if gram in left:
                left.remove(gram)
                matches += 1
        if matches == 0:
            if order == 1:
                return 0.0
            zeros += 1
            matches = Fraction(1, 2**zeros)
        product *= matches / len(grams)
        orders += 1
    if orders == 0:
        return 0.0
    brevity = 1.0 if len(tokens) >= len(wanted) else math.exp(1 - len(wanted) / len(tokens))
    return brevity * float(product) ** (1 / orders)


@settings(max_examples=150, deadline=None)
@given(first=words, second=words)
def test_both_agree_with_their_definitions(first, second):
    common = lcs_by_definition(tuple(first), tuple(second))
    assert longest_common_subsequence(first, second) == common
    expected = 2 * common / (len(first) + len(second)) if common else 0.0
    assert rouge_l(" ".join(first), " ".join(second)) == pytest.approx(expected)
    assert sentence_bleu(" ".join(first), " ".join(second)) == pytest.approx(bleu_by_definition(first, second))


@pytest.mark.parametrize(
    "text, reference, score",
    [
        ("the cat sat on the mat", "the cat sat on the mat", 1.0),
        # 5/6, 3/5, 1/4 and no 4-gram of 3: a half match
        ("the cat is on the mat", "the cat sat on the mat", (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25),
        # clipped: only two of seven; no 2-, 3- or 4-gram of 6, 5, 4: a half, a quarter, an eighth
        ("the the the the the the the", "the cat the mat", (2 / 7 * 0.5 / 6 * 0.25 / 5 * 0.125 / 4) ** 0.25),
        # all precisions 1, half as long
        ("one two three four", "one two three four five six seven eight", math.exp(-1)),
        ("Yes!", "yes !", 1.0),  # case and blanks do not count; two tokens, two orders
        ("no", "yes", 0.0),
        ("", "yes", 0.0),
        ("yes", "", 0.0),
        ("", "", 0.0),
    ],
)
def test_bleu_by_hand(text, reference, score):
    assert sentence_bleu(text, reference) == pytest.approx(score)


@pytest.mark.parametrize(
    "text, reference, score",
    [
        ("police kill the gunman", "police killed the gunman", 3 / 4),  # Lin's example: police the gunman
        ("the gunman kill police", "police killed the gunman", 2 / 4),  # the gunman
        ("A, b! c", "a b x c", 2 * 3 / (3 + 4)),  # marks do not count: P 3/3, R 3/4
        ("", "a", 0.0),
        ("a", "", 0.0),
        ("", "", 0.0),
        ("...", "...", 0.0),
    ],
)
def test_rouge_l_by_hand(text, reference, score):
    assert rouge_l(text, reference) == pytest.approx(score)


def test_a_text_without_end_takes_no_time():
    start = time.perf_counter()
    rouge_l("we walk on " * 30_000, "they walk home on foot " * 150)
    sentence_bleu("we walk on " * 30_000, "they walk home on foot " * 150)
    assert time.perf_counter() - start < 2.0
