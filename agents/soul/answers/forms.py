"""The form that a prompt asks for, `<answer>LETTER</answer>`: find it, tell it from an answer, say what is missing.

A prompt may name several forms at once: "<answer>yes</answer> or <answer>no</answer>".
"""

from __future__ import annotations

import re
from collections.abc import Collection

from soul.answers.thinking import without_thinking

TAGGED = re.compile(r"<answer>((?:(?!</?answer>).){0,400}?)</answer>", re.IGNORECASE | re.DOTALL)
_OPENING, _CLOSING = re.compile(r"<answer>", re.IGNORECASE), re.compile(r"</answer>", re.IGNORECASE)
_EITHER = r"[\s,/`'\"*]{0,4}(?:\b(?:or|and)\b)?[\s`'\"*]{0,4}"  # between two forms
_FORMS = re.compile(rf"<answer>[^<>]{{0,80}}</answer>(?:{_EITHER}<answer>[^<>]{{0,80}}</answer>)*", re.IGNORECASE)
# A text of nothing but these words takes the place of an answer: "<answer>your letter here</answer>".
_PLACEHOLDERS = frozenset(
    "answer answers choice choices letter letters name names number numbers option options place places text "
    "a an the your my only one single final chosen exact here goes of in with by inside between then and tag tags "
    "open close opening closing start end put write five different separated comma commas".split()
)


def asked_form(prompt: str) -> str:
    """The answer form of a prompt, as written there; "" if there is none. It comes last, after the texts of the row."""
    return next((match[0] for match in reversed(list(_FORMS.finditer(prompt)))), "")


def form_pattern(form: str) -> re.Pattern[str]:
    """A pattern of a whole form, with any white space, quotes and commas between its alternatives."""
    alternatives = [rf"<answer>\s{{0,4}}{re.escape(inner.strip())}\s{{0,4}}</answer>" for inner in TAGGED.findall(form)]
    return re.compile(_EITHER.join(alternatives), re.IGNORECASE)


def is_placeholder(inner: str, letters: Collection[str] = ()) -> bool:
    """True if the text inside a tag only takes the place of an answer: "", "...", "LETTER", "your choice".

    Args:
        letters: the letters that are answers. X is a placeholder unless it is one of them.
    """
    words = [word for word in re.findall(r"\w+", inner) if word != "X" or "X" in letters]
    known = all(word in _PLACEHOLDERS or word.lower() in _PLACEHOLDERS - {"a"} for word in words)
    return known and words[-1:] != ["a"]  # "option a" is an answer


def missing_answer(text: str) -> str:
    """A sentence that names what an unreadable attempt lacks: the tag, its end, its content, or a single answer."""
    visible = without_thinking(text)
    tagged = TAGGED.findall(visible)
    if tagged and is_placeholder(tagged[-1]):
        return "There was no answer between your <answer> tags, so you gave none."
    if tagged:
        return "What you wrote between your <answer> tags could not be read as a single answer of the kind asked for."
    if _OPENING.search(visible):
        return "You did not close your <answer> tag with </answer>, so your answer could not be read."
    if _CLOSING.search(visible):
        return "You did not open your answer with <answer>, so it could not be read."
    if _OPENING.search(text):
        return "Your <answer> tag was part of your thoughts, which nobody reads. Write it after them."
    return "You wrote no <answer> tag, so your answer could not be read."
