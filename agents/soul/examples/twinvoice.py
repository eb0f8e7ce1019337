"""TwinVoice: five people who comment on everything in their own way."""

from __future__ import annotations

from typing import Any

from soul.examples.example import LetterExample, pick, shuffled
from soul.tasks.twinvoice import TwinVoiceRow

# Name, description, and what this person says about anything.
_VOICES = (
    ("Ada", "Tired, and no friend of change.", "ugh, {thing}. nope nope nope."),
    ("Maud", "Brought up to be charming.", "How perfectly delightful, {thing}! I shall tell my cousin at once."),
    ("Brandt", "Counts money and minutes.", "{thing}: costs too much, takes too long. Next."),
    ("Pip", "Fourteen and wide awake.", "did somebody say {thing}?? count me in!!!"),
    ("Mrs Orr", "A widow with a long memory.", "My late husband had views on {thing}. I miss him still."),
)
_THINGS = (
    "a new lift, the harbour fair, a longer lunch, the night bus, a choir, the fifth floor, cold soup, "
    "the old cinema, a second dog, early frost, the chess club, free parking, a paper shortage"
).split(", ")


class TwinVoiceExample(LetterExample[TwinVoiceRow]):
    """One reply in the person's own voice, three in other people's voices."""

    name = "twinvoice"
    hidden = ("answer_idx",)

    def record(self, number: int) -> dict[str, Any]:
        speaker, persona, own = pick(_VOICES, number)
        start = number // len(_VOICES)
        thing, *earlier = (pick(_THINGS, start + step) for step in range(4))
        others = [voice for _, _, voice in _VOICES if voice != own]
        voices = shuffled([own, *shuffled(others, number, "others")[:3]], number, speaker)
        return {
            "conversation_history": [own.format(thing=old) for old in earlier],
            "anchor_post": f"Everybody is talking about {thing}. What do you say?",
            "answer_choices": [voice.format(thing=thing) for voice in voices],
            "answer_idx": voices.index(own),
            "dimension": str(1 + number % 3),
            "speaker": speaker,
            "persona": persona,
        }
