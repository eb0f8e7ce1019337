"""Withhold the gold answer from the feedback.

A critique that names the answer turns refinement into copying. `redact` withholds texts that a task declares secret
(`Task.secrets`), phrases that point at an option, and quotations of an option (`Task.choices`). `session.py` keeps
what was withheld for the trace.
"""

import re
from collections.abc import Collection, Sequence

from soul.answers.extraction import TAGGED, asked_form, form_pattern, is_placeholder
from soul.judge.call.untrusted import UNSPACED
from soul.leaks.letters import pointed_letters
from soul.leaks.quotations import Choices, Span, merged

WITHHELD = "[withheld]"

# The letter of an option, as opposed to a word. The article in "the answer is a place" and the pronoun in "the choice I
# made" must stay, so A, a, I and i count as letters only if the clause ends or an argument follows.
_LETTER = (
    r"[\"'(*]*(?:[A-HJ-Zb-hj-z]|[aiI](?=[\"')*\]]|\W*$|\s*[.,;:!?\n]|\s+(?:because|since|as|and|but|or|not|is)\b))"
    r"(?!\w|'\w)[\"')*]*"
)
_ORDINAL = r"(?i:first|second|third|fourth|fifth|sixth|last|1st|2nd|3rd|[4-9]th)(?:\s+(?i:two|three))?"
_POINTERS = re.compile(
    r"(?i:<answer>(?:(?!</?answer>).){0,400}?</answer>)"
    # "the answer is C", "option (b)", "choice: D", "reply B", "options B and C"
    r"|\b(?i:(?:answer|option|choice|letter|response|alternative|candidate)s?|reply|replies)(?:'s)?\b"
    # (Each optional part includes the white space after it: two `\s*` in a row take cubic time on a run of spaces.)
    r"\s*(?:(?i:is|are|was|were|must be|(?:sh|w)ould (?:be|have been))\b\s*)?(?:[:=-]\s*)?(?:(?i:not)\b\s*)?"
    rf"{_LETTER}(?:\s*(?:,|/|(?i:and|or|nor)\b)\s*{_LETTER})*"
    # "second option", "first two options", "the 3rd choice" (not "your first choice"), "option 2", "reply number two"
    rf"|\b{_ORDINAL}\s+(?i:options?|alternatives?)\b|\b(?i:the)\s+{_ORDINAL}\s+(?i:choices?)\b"
    r"|\b(?i:option|alternative|choice|reply)\s+(?i:(?:(?:#|no\.)\s*)?\d{1,2}|number\s+\w+)\b"
    # "pick C", "go with (B)"
    r"|\b(?i:choos\w*|chose\w*|pick\w*|select\w*|go(?:es|ing)? with|went with)\s+[\"'(*]*[A-HJ-Z](?!\w|'\w)[\"')*]*"
    # "C is correct", "(C)"
    r"|\b[A-Z]\s+(?:is|was)\s+(?:the\s+)?(?:correct|right|wrong|incorrect|true|false)\b"
    r"|\([A-Z]\)",
    re.DOTALL,
)


_NOT_BEFORE_A_NOUN = (
    r"(?!\s+(?!(?:because|since|as|and|but|or|to|he|she|they|it|is|was|would|here|instead)\b)(?:[a-z]|[\"'`]?<))"
)
# With two options, "the first" or "the latter" names one. "The first impression" does not.
_ONE_OF_TWO = re.compile(
    r"\bthe\s+(?:former|latter|(?:first|second)(?=\W*$|[.,;:!?)\"'\u201d*]"
    r"|\s+(?:is|was|would|should|could|has|fits|suits|sounds|reads|seems|one|option|over|and|or|because|better|instead)\b))",
    re.IGNORECASE,
)


def _words(secret: str) -> list[str]:
    # An option that is a sentence may be quoted with or without its full stop.
    bare = secret.strip().strip(".,;:!?\"'")
    return [word for word in re.split(r"[\s_\-]+", bare) if word]


def redact(
    text: str, secrets: Sequence[str], choices: Choices | None = None, prompt: str = ""
) -> tuple[str, list[str]]:
    """Replace secrets, and phrases that point at an option or quote one, by `[withheld]`.

    What says how to answer stays: "<answer>LETTER</answer>", "<answer></answer>", and the form that the prompt names.

    Args:
        text: the feedback.
        secrets: texts that must not appear. They are compared without case, with space, hyphen and underscore alike,
            and as whole words in scripts that separate words by spaces.
        choices: the lettered options, if the task has any.
        prompt: what the policy sees.

    Returns:
        The text without them, and the passages that were replaced. A passage contains `[withheld]` where it surrounds
        one that was replaced before it.
    """
    done, passages, start = "", list[str](), 0
    for form in _forms(prompt, secrets).finditer(text):
        done += _redacted(text[start : form.start()], secrets, choices, passages) + form[0]
        start = form.end()
    return done + _redacted(text[start:], secrets, choices, passages), passages


def _forms(prompt: str, secrets: Sequence[str]) -> re.Pattern[str]:
    """Matches a form with several answers: it names all of them, so it gives none away."""
    form = asked_form(prompt)
    several = form_pattern(form).pattern if len(TAGGED.findall(form)) > 1 else r"(?!)"
    either = r"\byes(?:\s+or\s+|\s*/\s*)no\b" if {"yes", "no"} <= set(secrets) else r"(?!)"
    return re.compile(f"{several}|{either}", re.IGNORECASE)


def _redacted(text: str, secrets: Sequence[str], choices: Choices | None, passages: list[str]) -> str:
    """The text without secrets; what was withheld is added to the passages."""

    def withheld(match: re.Match[str]) -> str:
        passages.append(match[0])
        return WITHHELD

    for secret in sorted(set(secrets), key=len, reverse=True):
        # "green_box" must not slip through as "green box" or "Green-Box".
        words = _words(secret)
        if not words or max(words, key=len).casefold() not in text.casefold():  # faster than building the pattern
            continue
        before = "" if UNSPACED.match(words[0]) else r"(?<!\w)"
        after = "" if UNSPACED.match(words[-1][-1]) else r"(?!\w)"
        pattern = before + r"[\s_\-]+".join(map(re.escape, words)) + after
        if words == ["no"] or words == ["No"]:  # "no one" and "no longer" do not give the answer away
            pattern += _NOT_BEFORE_A_NOUN
        text = re.sub(pattern, withheld, text, flags=re.IGNORECASE)
    if choices is not None:
        text = _blanked(text, choices.quotations(text), passages)
    if secrets:
        letters = choices.options if choices is not None else ()
        text = _POINTERS.sub(lambda match: match[0] if _is_form(match[0], letters) else withheld(match), text)
    if choices is not None:
        if len(choices.options) == 2:
            text = _ONE_OF_TWO.sub(withheld, text)
        text = _blanked(text, list(pointed_letters(text, choices)), passages)
    return text


def _is_form(passage: str, letters: Collection[str]) -> bool:
    """True for a pair of tags without an answer."""
    tagged = TAGGED.fullmatch(passage)
    return tagged is not None and is_placeholder(tagged[1], letters)


def _blanked(text: str, spans: Sequence[Span], passages: list[str]) -> str:
    """The text without these spans, which are added to the passages."""
    spans = merged(spans)
    passages += [text[start:end] for start, end in spans]
    for start, end in reversed(spans):
        text = text[:start] + WITHHELD + text[end:]
    return text


def is_empty(text: str) -> bool:
    """Return True if nothing but white space, punctuation and `[withheld]` is left."""
    return not re.search(r"\w", text.replace(WITHHELD, ""))
