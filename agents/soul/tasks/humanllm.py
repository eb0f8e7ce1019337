"""HumanLLM, item selection: which of twenty items does this user pick next?

One turn: five letters in `<answer>`, most likely first. The reward is 1 / rank of the item that the user picked, or 0
if it is not among the five.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from soul.answers.extraction import folded, introduced, tagged_answer, undressed
from soul.judge import Judge
from soul.one_turn import AnswerTask, OptionTask, letter_options, with_letter
from soul.prompts import load_prompt
from soul.row_fields import (
    CleanText,
    Options,
    gold_letter,
    option_references,
    option_texts,
    user_text,
)
from soul.task_types import Episode, Metric, NotBlank, Row, Verdict

RANKS = 5
_BETWEEN = re.compile(r"[\s,;>/|]+")  # separates the letters of an answer
_LONGEST_ANSWER = 200  # characters; a longer text in the tag is an essay

PROMPT = load_prompt("humanllm/policy")
# The original's records: "... History 1: a tent, History 2: boots. Candidate 1: a stove, Candidate 2: ...".
_FIRST_CANDIDATE = re.compile(r"(?:\bcandidates?(?: items)?:\s*)?\bCandidate\s*1\s*:", re.IGNORECASE)
_NEXT_ENTRY = re.compile(r"[,;\s]+(?=\bHistory\s*\d+\s*:)")
_ENUMERATOR = re.compile(r"^\s*[-*•]?\s*(?:[(\[]?(?:\d{1,3}|[A-Za-z])[)\].:]+)?\s*")


class HumanLLMRow(Row):
    """One choice of one user. `history` is the record's text without the list of candidates."""

    history: NotBlank
    candidates: Options = Field(max_length=26)
    answer_text: CleanText = ""
    answer_index: int | None = None
    answer_letter: CleanText = ""

    @model_validator(mode="before")
    @classmethod
    def _find_history(cls, record: Mapping[str, Any]) -> Any:
        text = user_text(record)
        if not text or record.get("candidates") is None:
            return record
        history = without_candidates(text, option_texts(record["candidates"]))
        return {**record, "history": _NEXT_ENTRY.sub("\n", history).strip()}


def without_candidates(text: str, candidates: Sequence[str]) -> str:
    """Remove the published list of all candidates ("Candidate 1: ..."); the prompt lists them with new letters.

    Elsewhere, what names a candidate stays.
    """
    first = _FIRST_CANDIDATE.search(text)
    listed = text[first.end() :] if first else ""
    last = re.search(rf"\bCandidate\s*{len(candidates)}\s*:\s*{re.escape(candidates[-1])}", listed, re.IGNORECASE)
    if first is None or last is None or not all(candidate in listed[: last.end()] for candidate in candidates):
        return text
    return "\n".join([text[: first.start()].rstrip(), listed[last.end() :].lstrip(" ,;.\n")]).strip()


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


class HumanLLM(OptionTask[HumanLLMRow]):
    """Which of these twenty books does a reader pick after two thrillers and a cookbook?"""

    name = "humanllm"
    version = 3  # 3: the prompt's form holds no letters that count as an answer
    row_type = HumanLLMRow
    options_field, gold_field = "candidates", "answer_letter"
    headline = Metric("mrr@5", source="model card (HumanLLM)")
    better = {**AnswerTask.better, "hit@5": "higher", "top1_acc": "higher"}
    cuts = (("history", "end"),)
    critic = load_prompt("humanllm/critique", 3)

    def render(self, row: HumanLLMRow) -> str:
        ranks = min(RANKS, len(row.candidates))
        example = ",".join(["LETTER"] * ranks)
        options = letter_options(row.candidates)
        return PROMPT.fill(history=row.history, options=options, ranks=str(ranks), example=example)

    def gold(self, row: HumanLLMRow) -> str:
        """The letter of the item that the user picked: found by its text, else by its index from 0, else by its letter.

        Raises:
            ValueError: none of the three names a candidate.
        """
        options = self.options(row)
        spellings = {_plain(row.answer_text), _plain(_ENUMERATOR.sub("", row.answer_text))} - {""}
        named = [letter for letter, text in options.items() if _plain(text) in spellings]
        if len(named) == 1:
            return named[0]
        if row.answer_index is not None and 0 <= row.answer_index < len(options):
            return list(options)[row.answer_index]
        return gold_letter(row.answer_letter, options)

    def given(self, row: HumanLLMRow, episode: Episode) -> str | None:
        """The item that was ranked first."""
        answer = self.answer_of(row, episode)
        return answer and with_letter(answer[0], self.options(row))

    def secrets(self, row: HumanLLMRow) -> Sequence[str]:
        return (*row.candidates, *option_references(("item", "candidate"), self.options(row)))

    def read(self, row: HumanLLMRow, text: str, strict: bool) -> str | None:
        """The letters of an answer, most likely first; None if they are not five different letters of the list."""
        answer = tagged_answer(text) or ""
        if strict:
            letters = [letter.strip().upper() for letter in answer.rstrip(".").split(",")]
        elif len(answer) <= _LONGEST_ANSWER:
            letters = [folded(part).upper() for part in _BETWEEN.split(introduced(undressed(answer))) if folded(part)]
        else:
            return None
        ranks = min(RANKS, len(row.candidates))
        valid = len(letters) == len(set(letters)) == ranks and set(letters) <= set(self.options(row))
        return ",".join(letters) if valid else None

    async def judge(self, row: HumanLLMRow, episode: Episode, judge: Judge) -> Verdict:
        ranked = (self.answer_of(row, episode) or "").split(",")
        gold = self.gold(row)
        reward = 1.0 / (ranked.index(gold) + 1) if gold in ranked else 0.0
        metrics = {
            "mrr@5": reward,
            "hit@5": float(gold in ranked),
            "top1_acc": float(reward == 1.0),
            **self.reading_metrics(row, episode),
        }
        return Verdict(reward, metrics)
