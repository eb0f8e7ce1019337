"""Separate a model's thoughts from its visible text.

Models mark their thoughts in many ways. Text in a block of thoughts is never an answer and is never shown to others.
"""

import re

# Names of blocks in angle brackets, which may have a prefix (`<seed:think>`) and attributes.
_NAMES = {
    "think": "think(?:ing)?",
    "thought": "thoughts?",
    "reason": "reason(?:ing)?",
    "reflection": "reflection",
    "analysis": "analysis",
    "scratchpad": "scratch_?pad",
}
# Kind of block -> how it opens, how it closes.
_BLOCKS: dict[str, tuple[str, str]] = {
    kind: (
        rf"<\s{{0,3}}(?:\w{{1,12}}:)?{name}(?:\s[^<>]{{0,80}})?>",
        rf"<\s{{0,3}}/\s{{0,3}}(?:\w{{1,12}}:)?{name}\s{{0,3}}>",
    )
    for kind, name in _NAMES.items()
} | {
    "mistral": (r"\[THINK\]", r"\[/THINK\]"),
    "kimi": ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    "cohere": (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    "sky": (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    "harmony": (
        r"<\|channel\|>\s{0,3}(?:analysis|commentary)\b",
        r"<\|channel\|>\s{0,3}final\b(?:\s{0,3}<\|message\|>)?",
    ),
}
# A tag of any kind. A judge's thoughts end at one, so `untrusted.neutral` breaks all of them in a policy's text.
TAG = re.compile(
    "(?=[<\\[\u25c1])(?:"  # lets the engine skip positions where no tag can begin: 25 times faster
    + "|".join(f"(?P<open_{kind}>{opens})|(?P<close_{kind}>{closes})" for kind, (opens, closes) in _BLOCKS.items())
    + ")",
    re.IGNORECASE,
)
_USER = re.compile(r"\A(?:\*\*)?(?:user|human)(?:\*\*)?\s*:(?:\*\*)?\s*", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """Return the text outside all blocks of thoughts.

    An unclosed block runs to the end of the text. A tag of another kind inside a block is part of the thought. If a
    closing tag has no opening tag, everything before it is thought, because the chat templates of thinking models put
    the opening tag into the prompt. This takes time linear in the length of the text.
    """
    visible: list[str] = []
    position = 0
    inside: str | None = None  # the kind of the open block
    opened: set[str] = set()
    for tag in TAG.finditer(text):
        action, _, kind = str(tag.lastgroup).partition("_")
        if inside is None and action == "open":
            visible.append(text[position : tag.start()])
            inside = kind
            opened.add(kind)
        elif inside == kind and action == "close":
            position, inside = tag.end(), None
        elif inside is None and action == "close":
            if kind in opened:  # a stray closing tag after a complete block
                visible.append(text[position : tag.start()])
            else:
                visible.clear()
                opened.add(kind)
            position = tag.end()
    return "".join(visible) + ("" if inside else text[position:])


def after_thinking(text: str) -> str:
    """Return the text after the blocks of thoughts at its beginning.

    Nothing behind them is changed, unlike in `without_thinking`: an answer in JSON may quote tags, even closing ones.
    As there, a closing tag without an opening one ends a thought. If a block is not closed, nothing is removed.
    """
    position = 0
    while (tag := TAG.search(text, position)) is not None:
        if position and text[position : tag.start()].strip():
            break  # the answer has begun
        action, _, kind = str(tag.lastgroup).partition("_")
        if action == "close" and position:
            break
        closing = [tag] if action == "close" else TAG.finditer(text, tag.end())
        end = next((one.end() for one in closing if one.lastgroup == f"close_{kind}"), None)
        if end is None:
            break
        position = end
    return text[position:]


def spoken_as_user(text: str) -> str:
    """Return the part that others see of a turn as a user: no thoughts, no "User:" in front."""
    return _USER.sub("", without_thinking(text).strip())
