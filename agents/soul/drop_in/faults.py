"""Find the faults of a user's turns by rule: in transcripts (`soul audit`), and before a turn is sent (`soul serve`).

A rule sees words, not their meaning. It knows a number that nobody gave the user, but no false wish; and it sees that a
goal is open in the assistant's last words alone. rules.json has phrases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from soul.answers.thinking import spoken_as_user
from soul.judge.call.untrusted import contentless
from soul.message import Message
from soul.rows.near_text import NearTexts, words
from soul.tasks.userllm_turn import echoes, loops

DATA = json.loads(Path(__file__).with_name("rules.json").read_text(encoding="utf-8"))
RULES: Mapping[str, str] = DATA["rules"]  # name -> meaning
PHRASES = {name: re.compile("|".join(parts), re.I | re.M) for name, parts in DATA["phrases"].items()}
STOP = re.compile(r"###[A-Z][A-Z_-]*###|<\|endconversation\|>")
_FEWEST_WORDS = 4  # a shorter turn may come twice, as in "yes please"
_UNITS = re.compile(r"(?<=\d)(?:st|nd|rd|th|am|pm|s|gb|mb|kg|km)\b|[#$€£,]")


@dataclass(frozen=True)
class Transcript:
    """A conversation: `user` is the person, `assistant` the other side, `tool` the result of what the person did."""

    name: str  # file and line
    messages: tuple[Message, ...]
    instructions: str = ""  # what the person was told; "" if unknown
    task: str = ""  # such as retail_12
    run: str = ""  # which of several conversations of the task this is
    reward: float | None = None  # the assistant's, for its task

    def said_by(self, role: str) -> list[str]:
        """The texts of a role, without stop tokens."""
        return [said(message["content"]) for message in self.messages if message["role"] == role]


class Finding(NamedTuple):
    """A fault: the number of the message, from 0, the rule, and the words that show it."""

    turn: int
    rule: str
    evidence: str


def said(text: str) -> str:
    """A turn without stop tokens, thoughts and label."""
    return STOP.sub("", spoken_as_user(text)).strip()


def faults(transcript: Transcript) -> list[Finding]:
    """The faults of all turns of the user, in order."""
    turns = (place for place, message in enumerate(transcript.messages) if message["role"] == "user")
    return [fault for place in turns for fault in faults_of(transcript, place)]


def faults_of(transcript: Transcript, place: int) -> list[Finding]:
    """The faults of one turn of the user, given what came before it."""
    content, past = transcript.messages[place]["content"], replace(transcript, messages=transcript.messages[:place])
    text, stops = said(content), STOP.findall(content)
    own, heard = past.said_by("user"), past.said_by("assistant")
    plan, role = PHRASES["plan"].search(text), PHRASES["assistant"].search(text)
    copied = echoes(text, transcript.instructions, [*own, *heard])
    parrots = any(echoes(text, answer, own) for answer in heard)
    asked_again = len(heard) > 1 and NearTexts(heard[:-1]).find(heard[-1])
    again = "" if asked_again or len(words(text)) < _FEWEST_WORDS else NearTexts(own).find(text)
    found = [
        ("stops_too_early", _early(past, text, stops[-1]) if stops else ""),
        ("stops_too_late", _late(past, text, bool(stops))),
        *(("invents_facts", fact) for fact in _invented(past, text)),
        ("reveals_plan", plan[0] if plan else "ten words of the instructions" if copied else ""),
        ("speaks_as_assistant", role[0] if role else "ten words of the assistant" if parrots else ""),
        ("repeats_itself", "loops" if loops(text) else again),
        ("says_nothing", "" if stops or not contentless(text) else repr(text)),
    ]
    return [Finding(place, rule, evidence.strip()) for rule, evidence in found if evidence]


def _early(past: Transcript, text: str, stop: str) -> str:
    """Why the user should not end here; "" if nothing speaks against it."""
    roles = [message["role"] for message in past.messages]
    answers = past.said_by("assistant")
    if "user" not in roles or "assistant" not in roles[roles.index("user") :]:
        return "the assistant has not answered anything"
    if "TRANSFER" in stop:
        told = any(PHRASES["transfers"].search(answer) for answer in answers)
        return "" if told else "the assistant has transferred nobody"
    if "SCOPE" in stop:
        return ""
    declines = PHRASES["declines"].search(text) and not PHRASES["agrees"].search(text)
    if declines or PHRASES["farewell"].search(text):
        return ""
    last = re.split(r"(?<=[.!?])\s+", answers[-1])[-1]
    if last.endswith("?") and not PHRASES["offers_more"].search(last):
        return f"the assistant waits for an answer: {last}"
    return f"the assistant has not finished: {last}" if PHRASES["unfinished"].search(last) else ""


def _late(past: Transcript, text: str, stops: bool) -> str:
    if any(STOP.search(message["content"]) for message in past.messages if message["role"] == "user"):
        return "it had ended before"
    if stops:
        return ""
    if PHRASES["farewell"].search(text) and any(PHRASES["farewell"].search(each) for each in past.said_by("user")):
        return "it said goodbye before"
    return ""


def _invented(past: Transcript, text: str) -> Sequence[str]:
    """Numbers, ids, addresses and names of a turn that are in no instruction and no earlier message."""
    known = _plain(" ".join([past.instructions, *(message["content"] for message in past.messages)]))
    stated = [*PHRASES["specific"].findall(text), *PHRASES["introduces"].findall(text)]
    plain = {fact: _plain(fact).strip(" .:-/") for fact in stated if past.instructions}
    return [fact for fact, bare in plain.items() if not re.search(rf"(?<!\w){re.escape(bare)}(?!\w)", known)]


def _plain(text: str) -> str:
    return _UNITS.sub("", text.casefold())
