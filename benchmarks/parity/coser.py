"""CoSER: gca_evaluation/utils.py of github.com/Neph0s/CoSER beside `soul.metrics.ngram`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.metrics.ngram import bleu, rouge_l

_BOOK = "Ada: Double it, or the lamp burns all night (folds her arms)\n\nRoe: You are hard, Ada, and the sea is harder"
# What is said on stage, and the book's own lines, both with the speakers' names.
SCENES = [
    (_BOOK, _BOOK),
    ("Ada: You will pay, or the lamp burns all night (turns)\n\nRoe: You are hard, Ada, and I am late", _BOOK),
    ("Roe: The sea the sea the sea, and the sea is harder\n\nAda: Double it, or the lamp burns", _BOOK),
    ("Roe: Good evening\n\nAda: Good evening", _BOOK),
]


def _theirs(place: int) -> Callable[[Path], Score]:
    def authors(clone: Path) -> Score:
        from nltk.tokenize import NLTKWordTokenizer  # their `word_tokenize` of a single sentence
        from nltk.translate.bleu_score import sentence_bleu
        from rouge import Rouge

        given = {"word_tokenize": NLTKWordTokenizer().tokenize, "sentence_bleu": sentence_bleu, "Rouge": Rouge}
        names = ("calculate_bleu_rouge",)
        function = authors_names(clone / "gca_evaluation" / "utils.py", names, given)[names[0]]

        def score(scene: tuple[str, str]) -> float:
            said, book = ([line.split(": ", 1) for line in text.split("\n\n")] for text in scene)
            simulation = [{"content": f"{name}: {text}"} for name, text in said]  # as in their published files
            return float(function([{"character": n, "message": m} for n, m in book], simulation)[place])

        return score

    return authors


_ROUGE = (
    "their published files have a plain longest common subsequence of words (0.072, 0.106 and 0.073 for the three "
    "conversations of exp/evaluation/test_set_gpt-4o.json; ours: 0.073, 0.106, 0.073); their code calls the package "
    "rouge, of which version 1.0.1 gives 0.105, 0.174 and 0.145"
)
_BLEU = "sentences are split by a list of abbreviations, not by NLTK's downloaded model: at most 0.02"
_PLOT = "the policy sees the plot summary, which their evaluation leaves out; flaws and scores by the paper's C.7"
COMPARISONS: list[Comparison] = [
    Comparison("coser", "mean of four dimensions (headline)", "paper", _PLOT),
    Comparison("coser", "bleu", "authors", _BLEU, "CoSER", SCENES, lambda scene: bleu(*scene), _theirs(0)),
    Comparison("coser", "rouge_l", "authors", _ROUGE, "CoSER", SCENES, lambda scene: rouge_l(*scene), _theirs(1)),
]
