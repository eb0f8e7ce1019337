"""Find letters in a text that point at a question's options: "It's C", "consider C instead", "the C option".

A capital letter that stands alone points at the option with this letter, unless the words around it say otherwise
("Plan B", "vitamin C", "B = 2"). A and I are words too, so their position in the sentence decides.
"""

import re
from collections.abc import Iterator

from soul.leaks.quotations import Choices, Span

NEAR = 60  # how many characters before and after a letter are examined

# A letter that stands alone or before "-option", but not in "D.C.", "J.B.", "C-section", "B&B", "C++", "it's", "I'm",
# "\\n", "<b>".
_ALONE = re.compile(
    r"(?<![A-Za-z0-9.&\\-])(?<![A-Za-z0-9]['\u2019])((?<!<)(?<!</)[a-z]|[A-Z])(?![A-Za-z0-9+#&]|\.[A-Za-z]|-(?!(?:option|choice|answer)\b)[A-Za-z]|['\u2019][a-rt-z])"
)
_BEFORE = re.compile(r"([^\W\d_]+(?:['\u2019][^\W\d_]+)?)[.]?[\s_]+$")
_AFTER = re.compile(r"[\s_]+([^\W\d_]+)")
_MATHS_BEFORE = re.compile(r"[=+^<>\u00d7\u00f7]\s*$")
_MATHS_AFTER = re.compile(r"\s*[=+^<>\u00d7\u00f7]")
# Words that turn the letter after them into a name: "Plan B", "Mr. B".
_NAMED_BY = frozenset(
    "plan vitamin hepatitis influenza point points angle angles side sides line lines vertex triangle circle set event "
    "variable type grade group team class section part appendix figure room gate block seat flat apartment platform "
    "building bus route phase note string schedule division series league person people character agent player speaker "
    "student patient company product drug witness suspect child friend mr mrs ms miss dr prof professor saint st sir "
    "lady madame monsieur sister brother aunt uncle".split()
)
_NAMED_BEFORE = frozenset("major minor flat sharp movie movies cell cells student students side minus plus".split())
# Words that never turn the letter after them into a name, whatever the prompt says.
_NO_NAME = frozenset(
    "a an and answer answers choice choices consider either is it it's letter letters neither nor not option options "
    "or pick reply replies response responses select than the to was with alternative candidate item items "
    "comment".split()
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\u2026]|\u2014)[\s\"'\u201c\u2018(*_\[#>-]*$")
_ENDS = r"\s*(?:$|[.,;:!?)\]}\"'\u2019\u201d*_/\u2026\u2014-])"
# Words that may follow a letter but hardly ever the article "A" or the pronoun "I".
_SAYS = (
    r"is|isn['\u2019]t|fits|matches|seems|looks|says|gives|holds|makes|follows|works|remains|comes|wins|describes|"
    r"captures|reflects|ignores|misses|explains|supports|shows|means|points|leads|contradicts|it\s+is|instead|"
    r"because|since|and|or|over|option|choice|answer|response|reply"
)
_LETTER_A = re.compile(
    rf"{_ENDS}|['\u2019]s\b|\s+(?:{_SAYS}|was|wasn['\u2019]t|would|wouldn['\u2019]t|could|should|must|might|may|can|cannot|"
    r"can['\u2019]t|does|doesn['\u2019]t|did|has|had|also|rather|nor|but|not|than|as|alone|only)\b"
)
_LETTER_I = re.compile(
    rf"{_ENDS}|['\u2019]s\b|\s+(?:{_SAYS}|next|before|after|(?:would|must|should|could|might|may)\s+have\s+been)\b"
    r"|\s+(?!(?:was|always|focus|perhaps|sometimes|this|thus|plus)\b)[a-z]{2,}[a-rt-z]s\b"  # "I mentions it"
)
_POINTED_BEFORE = re.compile(
    r"(?:\b(?:it['\u2019]s|is|was|not|than|consider|choose|pick|select|prefer|favou?r|over|toward|towards|exclude|with|"
    r"for|between|and|or|nor|to|the|at|about|out|why|how|that|hence|say|said|letter)|[,/(\"'])\s*[*_\"'(\[]*$",
    re.IGNORECASE,
)
_CHOOSES = re.compile(r"\b(?:it['\u2019]s|consider|choose|chose|pick|select|prefer|answer|letter)\s+$", re.IGNORECASE)
_CHOSEN = re.compile(r"\s+(?:instead|option|would have been|is (?:right|correct))\b")


def pointed_letters(text: str, choices: Choices) -> Iterator[Span]:
    """The spans of the letters in a text that point at an option."""
    for match in _ALONE.finditer(text):
        letter = match.group(1)
        before, after = text[max(0, match.start() - NEAR) : match.start()], text[match.end() : match.end() + NEAR]
        if letter.upper() in choices.options and _points(letter, before, after, choices):
            yield match.span()


def _points(letter: str, before: str, after: str, choices: Choices) -> bool:
    """Return True if a letter points at an option, judging by the text before and after it."""
    if _is_name(letter, before, after, choices):
        return False
    if letter == "I":
        return _LETTER_I.match(after) is not None
    if letter == "A":
        if _SENTENCE_START.search(before):
            return _LETTER_A.match(after) is not None
        follower = _AFTER.match(after)
        return not (follower and follower.group(1)[0].isupper())  # "in A Christmas Carol"
    if letter in "ai":
        if re.match(r"\s+would have been\b", after):
            return True
        follows = re.match(rf"{_ENDS}|\s+(?:instead|option|choice|because|since|is|was|would)\b", after)
        return follows is not None and _POINTED_BEFORE.search(before) is not None
    return True


def _is_name(letter: str, before: str, after: str, choices: Choices) -> bool:
    """Return True if the neighbours show that a letter is something else: part of a name, a quantity, an initial."""
    preceding, follower = _BEFORE.search(before[-40:]), _AFTER.match(after)
    word = preceding.group(1).casefold() if preceding else ""
    if word in _NAMED_BY or (follower and letter.isupper() and follower.group(1).casefold() in _NAMED_BEFORE):
        return True
    around = choices.surroundings
    if _MATHS_BEFORE.search(before[-5:]) or _MATHS_AFTER.match(
        after
    ):  # a quantity, if the exercise uses this letter as one
        if re.search(rf"(?<![A-Za-z0-9]){letter}\s*[=+^<>\u00d7\u00f7](?!/)", around):
            return True
    if letter.islower() and letter not in "ai" and not (_CHOOSES.search(before) or _CHOSEN.match(after)):
        if re.search(rf"(?<![\w'\u2019]){letter}(?![\w.):<'\u2019])", around):
            return True  # a variable of the exercise
    if word and word not in _NO_NAME and f" {preceding.group(1)} {letter} " in around:  # type: ignore[union-attr]
        return True  # a name, as in "the boy in Class B"
    initial = re.match(r"\. [A-Z]\w+", after)
    return initial is not None and f"{letter}{initial.group()}" in around
