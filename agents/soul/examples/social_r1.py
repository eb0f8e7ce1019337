"""Social-R1: people who do not say what they feel or mean."""

from __future__ import annotations

from typing import Any

from soul.examples.example import LetterExample, pick, shuffled
from soul.tasks.social_r1 import SocialR1Row

_PAIRS = (("Bo", "Ines"), ("Karim", "Lotte"), ("Yuna", "Piet"), ("Femi", "Ruth"), ("Olga", "Sanjay"))
_GIFTS = ("a green scarf", "a broken clock", "three plates", "an old map")
_SCENES = (
    (
        "{one} hoped for a bicycle and gets {gift} from {two}. {one} looks at it for a while and says: So kind of you.",
        "What does {one} feel?",
        "Let down",
        ("Overjoyed", "Afraid", "Proud"),
    ),
    (
        "{one} dropped {gift} and broke it. {two} comes home and asks who it was; {one} looks at the floor.",
        "What does {one} feel?",
        "Guilty",
        ("Bored", "Overjoyed", "Jealous"),
    ),
    (
        "{two} shows off {gift}. {one} wanted just that for years, could never pay for it, and turns away.",
        "What does {one} feel?",
        "Jealous",
        ("Grateful", "Sleepy", "Guilty"),
    ),
    (
        "{one} and {two} sit by an open window with {gift}. {one} rubs both arms and says: Is it not cold in here?",
        "What does {one} want {two} to do?",
        "Close the window",
        ("Praise the weather", "Leave at once", "Sing"),
    ),
)
# The formats of the sources: one option per line with a dot or with brackets, or all on one line.
_FORMS = ("{letter}. {text}\n", "({letter}) {text}\n", "{letter}. {text}  ")


class SocialR1Example(LetterExample[SocialR1Row]):
    """Short scenes in which people mean more than they say."""

    name = "social_r1"
    hidden = ("answer_letter", "answer_text")

    def record(self, number: int) -> dict[str, Any]:
        scene, question, right, wrong = pick(_SCENES, number)
        one, two = pick(_PAIRS, number)
        gift = pick(_GIFTS, number, len(_SCENES) * len(_PAIRS))
        options = shuffled([right, *wrong], number, one)
        form = pick(_FORMS, number)
        listed = "".join(form.format(letter=letter, text=text) for letter, text in zip("ABCD", options, strict=True))
        asked = f"{scene} Question: {question}".format(one=one, two=two, gift=gift)
        return {
            "prompt_text": f"{asked}\n{listed.strip()}",
            "answer_letter": "ABCD"[options.index(right)],
            "answer_text": right,
            "ability": "Intention: Hints" if "want" in question else "Emotion: Hidden emotions",
            "subtask": "Hints" if "want" in question else "Hidden Emotions",
        }

    def offered(self, row: SocialR1Row) -> list[str]:
        """The letters of the options; A to D if none can be parsed from the text."""
        return super().offered(row) or list("ABCD")
