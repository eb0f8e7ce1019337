"""Reading an answer to a question with options: by public code, and by SOUL."""

import io
import json
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Optional

from benchmarks.parity.comparison import (
    Comparison,
    Score,
    authors_score,
    judged_by_rule,
    tagged,
)
from soul import examples
from soul.answers.extraction import tagged_letter
from soul.tasks.alignx import AlignX, AlignXRow
from soul.tasks.humanllm import HumanLLM, HumanLLMRow

# --- AlignX: agents/alignx of the paper's own public code (OdysSim)

_ALIGNX = "alignx_demo, _pair, _ugc, _arbitrary, _history16"
_ALIGNX_FILE = "agents/alignx/agent.py"
_ALIGNX_ANSWERS = (  # to a question whose right letter is A
    "<answer>A</answer>",
    "Blunt words suit them. <answer> A </answer>",
    "<answer>B</answer>",
    "A",
    "<answer>a</answer>",
    "<answer>Response A</answer>",
    "<answer>**A**</answer>",
    "<answer>A or B</answer>",
    "<answer>B</answer> No: <answer>A</answer>",
)
_TEXTS = {"index": 0, "raw_prompt": "How do I say it?", "chosen": "Just say it.", "rejected": "If I may, perhaps,"}
_PAIR = {"prompt": "Tea?", "chosen": "No.", "rejected": "How kind."}
_USERS: tuple[dict[str, Any], ...] = (
    {**_TEXTS, "demographic": "A nurse.", "profile": "Likes blunt words."},
    {**_TEXTS, "demographic": "", "profile": "Likes blunt words."},
    {**_TEXTS, "demographic": "A nurse.", "icl_pairs": [_PAIR] * 3, "ugc": [{"prompt": "Rain", "comment": "Ugh."}]},
    _TEXTS,
)
_SHOWN = ("A nurse.", "Likes blunt words.", "How kind.", "Ugh.")


def _alignx_letter(strict: bool) -> Score:
    return lambda text: float(tagged_letter(text, {"A": "Just say it.", "B": "If I may,"}, strict=strict) == "A")


def _shown(text: str) -> float:
    """The texts about the user that are shown, as one number: each occurrence counts in its own digit."""
    return float(sum(text.count(part) * 10**place for place, part in enumerate(_SHOWN)))


def _alignx_prompt(record: dict[str, Any]) -> float:
    return _shown(AlignX().prompt(AlignXRow.model_validate(record))[0]["content"])


_their_letter = authors_score(
    _ALIGNX_FILE, "ANSWER_PATTERN _predict_choice", lambda read: lambda text: float(read(text) == "A"), re=re
)
_their_prompt = authors_score(_ALIGNX_FILE, "_format_persona_context", lambda shown: lambda row: _shown(shown(row)))

# --- HumanLLM: which rankings are read, and the reciprocal rank; its authors' own code is not public

_TASK = HumanLLM()
_ROW = HumanLLMRow.model_validate({"index": 0, **examples.load("humanllm").record(0)})
_GOLD = _TASK.gold(_ROW)
_OTHERS = [letter for letter in "ABCDEF" if letter != _GOLD]
_FIRST = ",".join([_GOLD, *_OTHERS[:4]])
_THIRD = ",".join([*_OTHERS[:2], _GOLD, *_OTHERS[2:4]])
_RANKINGS = [_FIRST, _THIRD, _THIRD.replace(",", ", "), _FIRST.lower(), f"{_FIRST}.", _GOLD, f"{_GOLD},{_THIRD}", ""]


def _reciprocal(letters: Sequence[str]) -> float:
    return 1.0 / (letters.index(_GOLD) + 1) if _GOLD in letters else 0.0


def _rank(said: str) -> float:
    read = _TASK.read(_ROW, tagged(said), False)
    return _reciprocal(read.split(",") if read else [])


def _their_rank(read: Callable[[str, list[str]], list[int] | None]) -> Score:
    return lambda said: _reciprocal([chr(ord("A") + place) for place in read(tagged(said), [*_ROW.candidates]) or []])


# --- Social-R1, Mistakes, TwinVoice: one letter


class Answer(NamedTuple):
    """A model's answer in the form that it is asked for, and the letter that is right."""

    said: str
    gold: str


_OPTIONS = {"A": "the drawer", "B": "the shelf", "C": "the box", "D": "the bag"}
_ANSWERS = [
    Answer("B", "B"),
    Answer("b", "B"),
    Answer("(B)", "B"),
    Answer("B. the shelf", "B"),
    Answer("the shelf", "B"),
    Answer("B or C", "C"),
    Answer("", "A"),
    Answer("D", "B"),
]


def _one_letter(
    evaluation_set: str, metric: str, repository: str, file: str, names: str, form: Callable[[str], str] = tagged
) -> Comparison:
    """The last of the names is the authors' function that reads an answer in this form."""

    def ours(answer: Answer) -> float:
        return float(tagged_letter(tagged(answer.said), _OPTIONS) == answer.gold)

    def score(read: Callable[[str], str | None]) -> Score:
        return lambda answer: float(read(form(answer.said)) == answer.gold)

    theirs = authors_score(file, names, score, re=re, json=json, Optional=Optional)
    return Comparison(evaluation_set, metric, repository, _ANSWERS, ours, theirs)


# --- LifeChoice: test_llms.py of github.com/airaer1998/LifeChoice

_QUESTION = {"Scenario": "-", "Question": "-", "Options": ["w", "x", "y", "z"], "Correct Answer": "B"}
_CHOSEN = ["B", "b", "A", "(B)", "Option B", "x", "no idea"]


def _decision(metric: str) -> Score:
    record = {"character_name": "Ada", "input_text": "-", "Multiple Choice Question": _QUESTION}
    return lambda said: judged_by_rule("lifechoices", record, tagged(said)).verdict.metrics[metric]


def _their_decision(evaluate: Callable[..., float]) -> Score:
    def score(said: str) -> float:
        with redirect_stdout(io.StringIO()):  # it prints the accuracy
            data = SimpleNamespace(data=[[{"Multiple Choice Question": _QUESTION}]])
            return float(evaluate(data, "", lambda _: said))

    return score


_TYPES: dict[str, Any] = {"List": list, "Dict": dict, "Optional": SimpleNamespace}
_their_choice = authors_score("test_llms.py", "evaluate_model", _their_decision, **_TYPES)

# --- ParaToMi: PercepToM and thought-tracing check inside of their main loop whether the gold place is in a sentence,
#     so there is no function to call; `_their_place` is their rule

_STORY = ["Isla entered the garden.", "The gloves are in the crate.", "Isla moved the gloves to the treasure_chest."]
_PLACES = {
    "story": _STORY,
    "question": "Where will Isla look for the gloves?",
    "cands": ["garden", "crate", "treasure_chest"],
    "correct_answer": "treasure_chest",
}
_SAID = [
    "treasure_chest",
    "In the treasure chest.",
    "in the treasure_chest in the garden",
    "the treasure_chests",
    "crate",
]


def _their_place(clone: Path) -> Score:
    source = (clone / "revised_tomi" / "test_tomi.py").read_text(encoding="utf-8")
    if "['answer'].lower() in prediction.lower()" not in source:
        raise ValueError(f"{clone}: the rule that is compared here is not in revised_tomi/test_tomi.py any more")
    return lambda said: float("treasure chest" in said.lower().replace("_", " "))


def _place(said: str) -> float:
    return judged_by_rule("paratomi", _PLACES, tagged(said)).verdict.reward


_their_ranking = authors_score(
    "agents/humanllm/agent.py", "TOP_K LETTERS ANSWER_PATTERN _predict_ranking", _their_rank, re=re, Optional=Optional
)
_SOCIAL_R1, _MISTAKES = "agents/social_r1/agent.py", "agents/mistakes/agent.py"
_TWINVOICE = "twinvoice/discriminative/dimension_2/evaluate.py"
COMPARISONS = [
    Comparison(_ALIGNX, "accuracy (headline)", "OdysSim", _ALIGNX_ANSWERS, _alignx_letter(False), _their_letter),
    Comparison(_ALIGNX, "accuracy_strict", "OdysSim", _ALIGNX_ANSWERS, _alignx_letter(True), _their_letter),
    Comparison(_ALIGNX, "what of the user is shown", "OdysSim", _USERS, _alignx_prompt, _their_prompt),
    Comparison("humanllm", "mrr@5 (headline)", "OdysSim", _RANKINGS, _rank, _their_ranking),
    _one_letter("social_r1", "accuracy (headline)", "OdysSim", _SOCIAL_R1, "ANSWER_TAG_RE _extract_option_letter"),
    _one_letter("social_r1", "accuracy", "ToMBench", "get_results.py", "extract_answer", "[[{}]]".format),
    _one_letter("mistakes", "accuracy (headline)", "OdysSim", _MISTAKES, "_extract_option_letter"),
    _one_letter(
        *("twinvoice", "accuracy (headline)", "TwinBench", _TWINVOICE, "parse_choice"),
        lambda said: json.dumps({"reasoning": "-", "choice": said}),
    ),
    Comparison("lifechoices", "accuracy (headline)", "LifeChoice", _CHOSEN, _decision("accuracy"), _their_choice),
    Comparison("lifechoices", "accuracy_strict", "LifeChoice", _CHOSEN, _decision("accuracy_strict"), _their_choice),
    Comparison("paratomi", "accuracy (headline)", "thought-tracing", _SAID, _place, _their_place),
]
