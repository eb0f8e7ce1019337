"""Read a definite answer from the `<answer>` tag that the prompt asks for. Thoughts and other text never count.

There are two readers. The default one accepts anything unambiguous inside the tag, in any format: "**B**", "Option B.",
"\\boxed{B}", "B: green_box" if B is the green box, or just the text of one option. It rejects two letters, a letter
with another option's text, and a letter with an explanation. The strict one accepts only a bare letter, as the paper's
code does: "B", "(b)", "B.". Both take time linear in the length of the text.

The end of the file is about the form that a prompt asks for: `<answer>LETTER</answer>`, or several forms at once.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from string import ascii_uppercase

from soul.answers.thinking import without_thinking

_ANSWER_TAG = re.compile(r"<\s{0,3}(/?)\s{0,3}answer\s{0,3}>", re.IGNORECASE)
_STRICT_LETTER = re.compile(r"\(?([A-Za-z])\)?\.?")

# Invisible characters: zero-width spaces, direction marks, variation selectors and the soft hyphen.
_UNSEEN = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")
_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"'),
        **dict.fromkeys("\u3010\u300c\u300e\u3014", "["),
        **dict.fromkeys("\u3011\u300d\u300f\u3015", "]"),
        "\u3001": ",",
        "\u3002": ".",
        "\u2044": "/",
        "\u2192": ">",
    }
)
# Formatting to ignore. Marks of struck-out text are kept, so that "~~B~~" and "<del>B</del>" are not read as B.
_TAGS = re.compile(r"</?(?:b|i|u|em|p|code|span|strong|letter|option|choice|br ?/?)>", re.IGNORECASE)
_LATEX = re.compile(r"\\(?:boxed|fbox|text|textbf|textit|textrm|mathbf|mathrm|mathit|mathsf|left|right|bf|rm)\b\s{0,3}")
_FRACTION = re.compile(r"\\[dt]?frac\s{0,3}\{([^{}]{0,80})\}\s{0,3}\{([^{}]{0,80})\}")
_ESCAPED = re.compile(r"\\([%$#&_])")
_BLANKS = re.compile(r"[\s_]+")
_WRAPPING = " \t\r\n*_`\"'()[]{}<>$\\|"
_ENDING = _WRAPPING + ".,;:!?\u2026"
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_ARTICLE = re.compile(r"^(?:the|an?)\s(?=\S)")

# Words that introduce a letter without changing its meaning: "the final answer is", "Option", "answer:".
_NOUN = r"(?:answer|option|choice|letter|response|reply|pick|selection|ans)"
_INTRODUCTION = re.compile(
    r"(?:[-\u2022>#]+\s+)?"
    rf"(?:(?:(?:the|my|your|so|thus|therefore|hence),?\s+)*(?:(?:final|correct|right|best|chosen)\s+)*{_NOUN}\b"
    r"[\s*_`\"']*(?:(?:is|would be|should be|must be)\b|[:=>-]+)?[\s*_`\"':]*){0,3}",
    re.IGNORECASE,
)
_LETTER = "[A-Za-z]"
_LETTER_BEHIND = re.compile(r"[(\[]([A-Za-z])[)\]][\s.]{0,3}\Z")  # "green_box (B)"
_MARK = re.compile(r"[\s*_`\"')\]}>|$]*(?:[.:,;=]|->|-(?=\s))?\s*")  # between a letter and its text
_NEGATION = re.compile(r"\b(?:not|never|neither|nor|except|without|rather than|instead of)\b|n't\b", re.IGNORECASE)
_PLACING = re.compile(r"^(?:in|inside|into|within|at|on|under|to)\s(?=\S)", re.IGNORECASE)
_DRESS = 200  # most characters of formatting and introduction around an answer; a longer text is an essay
_LONGEST_LIST = 2000  # most characters of an answer that lists names


def tagged_answer(text: str) -> str | None:
    """Return the text of the last `<answer>` tag outside thoughts; None if it has no letter or digit, or is missing."""
    visible = without_thinking(text)
    answer, start = "", None
    for tag in _ANSWER_TAG.finditer(visible):
        if not tag.group(1):
            start = tag.end()
        elif start is not None:
            answer, start = visible[start : tag.start()], None
    answer = answer.strip()
    return answer if any(any(map(str.isalnum, unicodedata.normalize("NFKC", c))) for c in answer) else None


def tagged_letter(text: str, options: Mapping[str, str] | None = None, *, strict: bool = False) -> str | None:
    """Return the letter of the option in the answer tag, upper case; None if the tag names no option, or several.

    Args:
        text: everything that the policy wrote.
        options: letter -> text, "" if it is unknown; None: the letters A to Z, texts unknown.
        strict: accept only a bare letter, as the paper's code does.
    """
    answer = tagged_answer(text)
    if answer is None:
        return None
    options = dict.fromkeys(ascii_uppercase, "") if options is None else options
    if not strict:
        return chosen_option(answer, options)
    match = _STRICT_LETTER.fullmatch(answer)
    return match.group(1).upper() if match and match.group(1).upper() in options else None


def chosen_option(answer: str, options: Mapping[str, str], key: str = _LETTER) -> str | None:
    """Return the key of the only option that an answer names by its key, its text or both; None if it is not unique.

    Args:
        answer: the text inside the tag.
        options: key -> text, keys in upper case; "" if the text is unknown.
        key: the pattern of a key: a letter, or the number of a step on a scale.
    """
    if len(answer) > 2 * max(map(len, options.values()), default=0) + _DRESS:
        return None
    plain = undressed(answer)
    bare = introduced(plain)
    texts = {name: folded(undressed(text)) for name, text in options.items()}
    readings = _by_text((plain, bare), texts)
    letter = re.match(rf"({key})(?![^\W_])", bare)
    if letter and (name := letter.group(1).upper()) in options:
        after = bare[letter.end() :]
        if not after.strip(_ENDING):
            return name  # even if this letter is the text of another option, because the prompt asks for a letter
        readings |= _by_text((after[_MARK.match(after).end() :],), {name: texts[name]})  # type: ignore[union-attr]
    behind = _LETTER_BEHIND.search(bare)
    if behind and (name := behind.group(1).upper()) in options:
        readings |= _by_text((bare[: behind.start()],), {name: texts[name]})
    return readings.pop() if len(readings) == 1 else None


def _by_text(candidates: Iterable[str], texts: Mapping[str, str]) -> set[str]:
    """The keys of the folded texts that equal one of the candidates; if none does, articles are ignored."""
    for fold in (folded, _without_article):
        forms = {fold(text) for text in candidates} - {""}
        if keys := {name for name, text in texts.items() if fold(text) in forms}:
            return keys
    return set()


def mentioned_names(answer: str, names: Iterable[str]) -> set[str]:
    """Return the names (of places or people) that the answer mentions as whole words.

    Case, spaces, underscores and hyphens do not matter. If one name is part of another ("box", "red box"), the longer
    one counts.
    """
    present = set()
    for name in sorted(set(names), key=lambda name: (-len(name), name)):
        words = r"[\s_\-]+".join(re.escape(word) for word in re.split(r"[\s_\-]+", name.strip()))
        answer, count = re.subn(rf"(?<!\w){words}(?!\w)", "\0", answer, flags=re.IGNORECASE)
        if count:
            present.add(name)
    return present


def names_given(answer: str, names: Iterable[str], *, strict: bool = False) -> set[str]:
    """Return the names that an answer gives; none if it denies something ("not the crate") or is an essay.

    Args:
        answer: the text inside the tag.
        names: the names that an answer may give.
        strict: accept every name that the answer mentions, as the paper's code does.
    """
    if strict:
        return mentioned_names(answer, names)
    if len(answer) > _LONGEST_LIST:
        return set()
    plain = undressed(answer).strip(_ENDING)
    return set() if _NEGATION.search(plain) else mentioned_names(plain, names)


def undressed(text: str) -> str:
    """Return a text in plain characters, without tags and LaTeX. `folded` also removes surrounding Markdown."""
    text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).translate(_LOOKALIKES)
    if "<" in text:
        text = _TAGS.sub("", text)
    if "\\" in text:
        text = _ESCAPED.sub(r"\1", _LATEX.sub("", _FRACTION.sub(r"\1/\2", text)))
    return text.strip()


def introduced(plain: str) -> str:
    """Return an undressed text without an introduction ("The answer is") and opening brackets."""
    bare = plain.lstrip(_WRAPPING)
    return bare[_INTRODUCTION.match(bare).end() :].lstrip(_WRAPPING)  # type: ignore[union-attr]  # matches "" too


def folded(plain: str) -> str:
    """Return an undressed text for comparison: casefolded, with single spaces, without surrounding marks."""
    return _HYPHEN.sub(" ", _BLANKS.sub(" ", plain)).casefold().lstrip(_WRAPPING).rstrip(_ENDING)


def _without_article(plain: str) -> str:
    """Like `folded`, without an article in front. A capital "A" stays, because it may be meant as a letter."""
    text = folded(plain)
    return text if plain.lstrip(_WRAPPING).startswith("A") else _ARTICLE.sub("", text, count=1)


def folded_place(answer: str) -> str:
    """Return a place for comparison if the row lists no places: `folded`, without "in the" in front."""
    place = folded(introduced(undressed(answer[:_LONGEST_LIST])))
    return _ARTICLE.sub("", _PLACING.sub("", place, count=1), count=1)


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
