"""Measures of texts beside public code: CoSER, Humanual, MirrorBench and UserLLM."""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from benchmarks.parity.comparison import Comparison, Score, authors_names, authors_score, judged_by_rule
from soul.metrics.lexical import Lexis, gpt4o_tokens, lexis
from soul.metrics.ngram import bleu, rouge_l, token_f1
from soul.metrics.set_metrics import Outcome, jaccard_pairs
from soul.tasks.humanual import length_factor
from soul.tasks.userllm_turn import intent_overlap, turn_tokens

# --- CoSER: gca_evaluation/utils.py of github.com/Neph0s/CoSER

_BOOK = "Ada: Double it, or the lamp burns all night (folds her arms)\n\nRoe: You are hard, Ada, and the sea is harder"
# What is said on stage, and the book's own lines, both with the speakers' names.
_SCENES = [
    (_BOOK, _BOOK),
    ("Ada: You will pay, or the lamp burns all night (turns)\n\nRoe: You are hard, Ada, and I am late", _BOOK),
    ("Roe: The sea the sea the sea, and the sea is harder\n\nAda: Double it, or the lamp burns", _BOOK),
    ("Roe: Good evening\n\nAda: Good evening", _BOOK),
]


def _their_scene(place: int) -> Callable[[Path], Score]:
    def authors(clone: Path) -> Score:
        from nltk.tokenize import NLTKWordTokenizer  # their `word_tokenize` of a single sentence
        from nltk.translate.bleu_score import sentence_bleu
        from rouge import Rouge

        given = {"word_tokenize": NLTKWordTokenizer().tokenize, "sentence_bleu": sentence_bleu, "Rouge": Rouge}
        name = "calculate_bleu_rouge"
        function = authors_names(clone / "gca_evaluation" / "utils.py", [name], given)[name]

        def score(scene: tuple[str, str]) -> float:
            said, book = ([line.split(": ", 1) for line in text.split("\n\n")] for text in scene)
            simulation = [{"content": f"{name}: {text}"} for name, text in said]  # as in their published files
            return float(function([{"character": n, "message": m} for n, m in book], simulation)[place])

        return score

    return authors


# --- Humanual: agents/humanual of the paper's own public code (OdysSim)

_HUMANUAL = "humanual_book, _chat, _email, _news, _opinion, _politics"
_LONG = "i would not go back there even if the food were free because nobody looked at us for half an hour at all"


class Texts(NamedTuple):
    """A model's text, and the person's."""

    said: str
    gold: str


_WRITTEN = [
    Texts(_LONG, _LONG),
    Texts("never again", _LONG),
    Texts("I don't know, it's half-baked.", _LONG),
    Texts("never again", "not for me"),
    Texts("The food, the wait!", "the food was not worth the wait"),
    Texts("", _LONG),
]


def _humanual(metric: str, ours: Callable[[str, str], float]) -> Comparison:
    theirs = authors_score(
        *("agents/humanual/agent.py", f"_TOKEN_RE _tokenize _{metric}"),
        lambda function: lambda texts: float(function(*texts)),
        re=re,
    )
    return Comparison(_HUMANUAL, metric, "OdysSim", _WRITTEN, lambda texts: ours(*texts), theirs)


# --- MirrorBench: mirrorbench/metrics of github.com/SAP/mirrorbench

_TURNS = [
    ["Which ferry goes to the island?"],
    ["no", "No thanks", "no, really, no"],
    ["I\u2019d like 3 tickets \u2014 for two adults & a dog!!", "ok thx \U0001f44d"],
    ["so it leaves at nine and the other one at ten " * 9],
]
_PARAMETERS = {"mattr": (50,), "hdd": (42,), "yules_k": ()}


def _measure(name: str) -> Comparison:
    def ours(turns: Sequence[str]) -> float:
        found = lexis(turns)
        return math.nan if found is None else float(getattr(found, name))

    theirs = authors_score(
        f"mirrorbench/metrics/lexical/{name}.py",
        f"_{name}",
        lambda code: lambda turns: float(code(gpt4o_tokens(" ".join(turns)), *_PARAMETERS[name])),
        Counter=Counter,
        comb=math.comb,
        Sequence=Sequence,
    )
    return Comparison("mirrorbench", name, "mirrorbench", _TURNS, ours, theirs)


# --- UserLLM: agents/userllm of the paper's own public code (OdysSim)

_OPTIONS = ("cave", "barn", "night sky", "bridge", "sea")
_ASKED = [
    "no idea, thats why i ask",
    "the cave i guess",
    "cave or barn?",
    "cave, barn or bridge",
    "an excavation, a barnacle, some seaweed",
    "the night-sky!",
    "cave barn night sky bridge sea, which one",
]
_INTENT = "Explore how bees find flowers."
_SAID = [
    "how do bees find flowers",
    "Bees! can bees see red?",
    "please not bees",
    "hello?",
    "bees_find 100%",
    "it's to be",
]
_OPENINGS = [
    ["do bees see red?", "what of wasps?", "don't they sleep"],
    ["same thing", "same thing"],
    ["hi!", "hi", "\u4f60\u597d"],
]


def _role(said: str) -> float:
    record = {
        "source": "commonsense_qa",
        "intent": "Ask.",
        "choices": list(_OPTIONS),
        "conversation_history": "User: ?",
    }
    return judged_by_rule("userllm", record, said).verdict.metrics["role_adherence"]


def _their_role(normal: Callable[[str], str]) -> Score:
    """The rule of agent.py, whose function also calls models."""

    def score(said: str) -> float:
        mentioned = sum(normal(option) in normal(said) for option in _OPTIONS)
        return float(mentioned not in (1, 2, len(_OPTIONS)))

    return score


def _openings(turns: Sequence[str]) -> float:
    outcomes = [Outcome(place, 1.0, None, "worst") for place in range(len(turns))]
    (diversity,) = jaccard_pairs("diversity", outcomes, list(map(turn_tokens, turns))).values(np.ones((1, len(turns))))
    return float(np.nan_to_num(diversity))


_HELPERS = "agents/userllm/helpers.py"
_OVERLAP = "_STOPWORDS _tokenize _is_cjk_char _filter_tokens_for_overlap _intent_1gram_overlap"
COMPARISONS = [
    Comparison("coser", "bleu", "CoSER", _SCENES, lambda scene: bleu(*scene), _their_scene(0)),
    Comparison("coser", "rouge_l", "CoSER", _SCENES, lambda scene: rouge_l(*scene), _their_scene(1)),
    _humanual("length_factor", length_factor),
    _humanual("lexical_f1", token_f1),
    *map(_measure, Lexis._fields),
    Comparison(
        *("userllm", "role_adherence", "OdysSim", _ASKED, _role),
        authors_score(_HELPERS, "_normalize_for_choice_match", _their_role, re=re),
    ),
    Comparison(
        *("userllm", "intent_overlap", "OdysSim", _SAID, lambda said: intent_overlap(_INTENT, said)),
        authors_score(_HELPERS, _OVERLAP, lambda f: lambda said: float(f(_INTENT, said)), string=string),
    ),
    Comparison(
        *("userllm", "first_turn_diversity", "OdysSim", _OPENINGS, _openings),
        authors_score(
            *("agents/userllm/agent.py", "_first_turn_diversity_compatible", lambda f: lambda turns: float(f(turns))),
            combinations=combinations,
            Optional=Optional,
        ),
    ),
]
