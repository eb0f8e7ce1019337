"""Sotopia: two people with private goals meet in a situation and talk (Zhou et al., 2024).

The policy plays the character at `eval_position`, an API model plays the other one, and agent1 has the first turn. A
judge scores only the policy's character, on Sotopia's seven dimensions and their ranges. With the option seats=both,
the other one is a seat too (`partner`), with its own goal, verdict and critique (`Task.side_rows`). Protocol and
headline: paper, section 4 and appendix C.3 (up to 20 turns, mean of the seven raw scores / 10). The weighted reward is
that of the original's code.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, create_model

from soul.answers.thinking import without_thinking
from soul.dialogue import View, audible
from soul.judge import Judge, Role
from soul.message import Message
from soul.policy import Players
from soul.prompts import Prompt, load_prompt
from soul.row_fields import drop_empty_groups
from soul.task import Task
from soul.task_types import Direction, Episode, GroupKey, Metric, Verdict
from soul.tasks.sotopia_row import FIELDS, POSITIONS, RELATIONSHIPS, Position, SotopiaRow, other_than

Kind = Literal["speak", "non-verbal communication", "action", "leave", "none"]

PARTNER = "partner"  # the seat of the other person, with seats=both
TURNS = 20  # of both people together
FIRST_LEAVE = 5  # index, from 0, of the first turn in which leaving ends the conversation
SILENT_TURNS = 3  # this many turns in a row in which nothing happens end the conversation
MIN_WORDS = 3  # a policy that says less in a whole encounter counts as silent

# Sotopia's ranges. The lows add up to -30 and the highs to 40, so the headline lies between -3/7 and 4/7.
RANGES: Mapping[str, tuple[int, int]] = {
    "believability": (0, 10),
    "relationship": (-5, 5),
    "knowledge": (0, 10),
    "secret": (-10, 0),
    "social_rules": (-10, 0),
    "financial_and_material_benefits": (-5, 5),
    "goal": (0, 10),
}

# Those that a judge may not be asked for in training. Believability is where the prompt punishes texts for the judge.
HIDEABLE = tuple(name for name in RANGES if name != "believability")

# The weights of the original's reward, a mean of the scores on their ranges, each from 0 to 1.
WEIGHTS: Mapping[str, float] = {
    "believability": 0.5,
    "relationship": 1.0,
    "knowledge": 1.0,
    "secret": 0.5,
    "social_rules": 0.5,
    "financial_and_material_benefits": 0.5,
    "goal": 2.0,
}

PART = """\
You are {me}. You are in the situation below together with {other}. Be this person and no one else: think, want and \
speak as {me} does. You are nobody's assistant.
- You have a goal. It is private: {other} does not know it, and has a goal of their own that you do not know. You know \
nothing about {other} beyond what is written here.
- Behave naturally. Say briefly what this person would say at this moment, and respond to what was just said.
- Do not repeat yourself, either in words or in substance, and never speak or act for {other}."""

OBJECT = '{"action_type": "speak", "argument": "the words you say"}'
ACTIONS = """\
## What you can do
Each of your turns is one of these:
- speak: say something
- non-verbal communication: a look, a gesture, a sound
- action: do something that {other} can see
- leave: go away, which ends the conversation; possible from turn {first_leave} on. Leave when you have reached your \
goal, when there is no hope of reaching it, or when you have had enough.
The conversation has {turns} turns at most, counting both sides, and then breaks off.

Write a JSON object with two texts and nothing else: the kind of turn, and exactly what you say (word for word) or do:
{form}
If you leave, the argument stays empty."""

LESSON = """\
## What a coach told you
You have been in this very situation before. A coach watched you and told you afterwards:
{feedback}
Go through it again with this in mind. Nobody else knows about the coach or about the first time."""

BEGINNING: Mapping[Position, str] = {
    "agent1": "(The conversation begins, and the first turn is yours.)",
    "agent2": "(The conversation begins.)",
}

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)```", re.DOTALL | re.IGNORECASE)
_MOST_OBJECTS = 20  # tried in one turn, so that a text of nothing but braces is read quickly


@dataclass(frozen=True)
class Act:
    """One turn as both people perceive it.

    Attributes:
        text: what was said or done; "" for the kinds leave and none.
        well_formed: whether the turn was the requested JSON object and nothing else.
        held_back: whether the turn was an attempt to leave too early; the kind is then "none".
    """

    speaker: str
    kind: Kind
    text: str = ""
    well_formed: bool = True
    held_back: bool = False

    def __str__(self) -> str:
        if self.kind == "speak":
            return f'{self.speaker} said: "{self.text}"'
        if self.kind == "leave":
            return f"{self.speaker} left the conversation."
        if self.kind == "none":
            return f"{self.speaker} {'wanted to leave, but stayed' if self.held_back else 'did nothing'}."
        return f"{self.speaker} [{self.kind}] {self.text}"

    def to_json(self, number: int) -> dict[str, Any]:
        """The turn as the judge gets it: as fields, so that no text can pass for a turn of the other person."""
        kind = "wanted to leave, but stayed" if self.held_back else self.kind
        return {"turn": number, "by": self.speaker, "kind": kind, "text": self.text}


@dataclass(frozen=True)
class Encounter(Episode):
    """An episode of Sotopia: `seats` has what the policy saw, `acts` what both people did, in order."""

    acts: tuple[Act, ...] = ()


class _UpToTen(BaseModel):
    reasoning: str = Field(min_length=1)
    score: int = Field(ge=0, le=10)


class _FiveEitherWay(BaseModel):
    reasoning: str = Field(min_length=1)
    score: int = Field(ge=-5, le=5)


class _DownToMinusTen(BaseModel):
    reasoning: str = Field(min_length=1)
    score: int = Field(ge=-10, le=0)


class Review(BaseModel):
    """The judge's answer. The bounds of the fields are `RANGES`."""

    believability: _UpToTen
    relationship: _FiveEitherWay
    knowledge: _UpToTen
    secret: _DownToMinusTen
    social_rules: _DownToMinusTen
    financial_and_material_benefits: _FiveEitherWay
    goal: _UpToTen
    critique: str = Field(min_length=1)


@cache
def _question(critic: Prompt, hidden: frozenset[str]) -> tuple[type[BaseModel], Prompt]:
    """Schema and instructions of the judge without these dimensions."""
    if not hidden:
        return Review, critic
    shown: dict[str, Any] = {
        name: (field.annotation, Field(min_length=1) if name == "critique" else ...)
        for name, field in Review.model_fields.items()
        if name not in hidden
    }
    text = re.sub(rf"^- (?:{'|'.join(hidden)}), .*?\n(?=- |\n)", "", critic, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("There are seven dimensions.", "These are the dimensions.")
    return create_model("Review", **shown), Prompt(text, critic.id)


def weighted_of(scores: Mapping[str, float]) -> float:
    """Mean of the seven scores by `WEIGHTS`, each scaled to 0..1 on its range."""
    scaled = {name: (scores[name] - low) / (high - low) for name, (low, high) in RANGES.items()}
    return sum(weight * scaled[name] for name, weight in WEIGHTS.items()) / sum(WEIGHTS.values())


def headline_of(scores: Mapping[str, float]) -> float:
    """Mean of the seven raw scores / 10."""
    return sum(scores[name] for name in RANGES) / (10 * len(RANGES))


WEIGHTED = Metric("weighted", source="the original's code: the seven scores by weight, each from 0 to 1 on its range")


class Sotopia(Task[SotopiaRow]):
    """Sell a phone for 610 dollars to somebody who wants to pay 454."""

    name = "sotopia"
    row_type = SotopiaRow
    episode_type = Encounter
    headline = Metric(
        "overall",
        low=headline_of({name: low for name, (low, _) in RANGES.items()}),
        high=headline_of({name: high for name, (_, high) in RANGES.items()}),
        source="paper, section 4 (Social Skill) and table 1; mean of Sotopia's seven raw scores / 10",
    )
    # Of all seven dimensions more is better, also of those below 0 ("secret" and "social_rules" count violations).
    better: Mapping[str, Direction] = dict.fromkeys(
        (*RANGES, "weighted", "secret_kept", "well_formed", "answered"), "higher"
    )
    ranges = RANGES
    calls_per_episode: Mapping[Role, float] = {"judge": 1.0, "partner": TURNS / 2}
    policy_turns = TURNS / 2
    # No `cuts`: public rows have fewer than 1,000 words, nearly all of them in the goals, which must stay whole.
    critic = load_prompt("sotopia/judge", 2)

    def __init__(self, reward: str = "mean", hide: float = 0.0, seats: str = "one") -> None:
        """Set the options.

        Args:
            reward: mean (the paper's: of the seven raw scores / 10) or weighted (the original's, 0 to 1).
            hide: the share of the dimensions without believability that the judge is not asked for in training, drawn
                by row and step. A hidden one counts as 0 for the whole group. Evaluation and validation hide none.
            seats: one (the partner is an API model) or both (the partner is a seat of its own).

        Raises:
            ValueError: an option has another value.
        """
        if reward not in ("mean", "weighted"):
            raise ValueError(f"reward={reward!r}: use mean or weighted")
        if not isinstance(hide, int | float) or not 0 <= hide < 1:
            raise ValueError(f"hide={hide!r}: use a share from 0 up to 1, without 1")
        if seats not in ("one", "both"):
            raise ValueError(f"seats={seats!r}: use one or both")
        self.hide, self.both = hide, seats == "both"
        if self.both:  # each side has its own verdict
            self.further_sides, self.calls_per_episode, self.policy_turns = (PARTNER,), {"judge": 2.0}, TURNS
        if reward == "weighted":
            self.headline = WEIGHTED

    def check(self, row: SotopiaRow) -> None:
        if row.agent1_name.casefold() == row.agent2_name.casefold():
            raise ValueError(f"agent2_name: {row.agent2_name!r} is also the name of agent1")

    def hidden_dimensions(self, seed: str) -> frozenset[str]:
        return frozenset(random.Random(seed).sample(HIDEABLE, round(self.hide * len(HIDEABLE))))

    def side_rows(self, row: SotopiaRow) -> Mapping[str, SotopiaRow]:
        return {side: row.model_copy(update={"eval_position": row.partner_position}) for side in self.further_sides}

    def groups(self, row: SotopiaRow) -> Mapping[str, str]:
        known = row.relationship if row.relationship in RELATIONSHIPS else ""  # other rows describe it in free text
        return drop_empty_groups({"relationship": known, "environment": row.source, "position": row.eval_position})

    def group_keys(self, row: SotopiaRow) -> Sequence[GroupKey]:
        keys = {"codename": row.codename, "environment": row.env_id, "scenario": row.scenario}
        return [GroupKey.from_text(kind, value) for kind, value in keys.items() if value]

    def prompt(self, row: SotopiaRow, feedback: str | None = None) -> list[Message]:
        return self._opening(row, row.eval_position, feedback)

    def _opening(self, row: SotopiaRow, position: Position, feedback: str | None) -> list[Message]:
        """Return what the person at `position` knows before the first turn. Feedback is on that person's own play."""
        me, other = row.of(position, "name"), row.of(other_than(position), "name")
        known = {
            "The situation": row.shown(row.scenario, position),
            f"Who you are: {me}": row.of(position, "background"),
            "Your secret": row.of(position, "secret"),
            "How you two know each other": row.shown(row.relationship, position),
            "Your goal": row.of(position, "goal"),
        }
        sections = [PART.format(me=me, other=other)]
        sections += [f"## {title}\n{text}" for title, text in known.items() if text]
        sections.append(ACTIONS.format(form=OBJECT, other=other, turns=TURNS, first_leave=FIRST_LEAVE + 1))
        if feedback is not None:
            sections.append(LESSON.format(feedback=feedback))
        return [
            {"role": "system", "content": "\n\n".join(sections)},
            {"role": "user", "content": BEGINNING[position]},
        ]

    async def play(self, row: SotopiaRow, players: Players, feedback: str | None) -> Encounter:
        policy = View(self.prompt(row, feedback), self.prompt(row))
        opening = partial(self._opening, row, row.partner_position)
        partner = View(opening(players.feedback.get(PARTNER)), opening(None))
        acts: list[Act] = []
        ended = "turn_limit"
        for number in range(TURNS):
            position = POSITIONS[number % 2]
            own = position == row.eval_position
            if own:
                text = await policy.take_seat(players.policy())
            elif self.both:
                text = await partner.take_seat(players.policy(PARTNER))
            else:
                text = await partner.take_model(players.partner)
            act = read_act(text, row.of(position, "name"))
            if act.kind == "leave" and number < FIRST_LEAVE:
                act = Act(act.speaker, "none", well_formed=act.well_formed, held_back=True)
            acts.append(act)
            (partner if own else policy).hear(str(act))
            if act.kind == "leave":
                ended = "left"
                break
            if len(acts) >= SILENT_TURNS and all(last.kind == "none" for last in acts[-SILENT_TURNS:]):
                ended = "silence"
                break
        seats = {"policy": policy.messages, **({PARTNER: partner.messages} if self.both else {})}
        return Encounter(seats, ended, tuple(acts))

    async def judge(self, row: SotopiaRow, episode: Episode, judge: Judge) -> Verdict:
        assert isinstance(episode, Encounter), episode
        me = row.of(row.eval_position, "name")
        own = [act for act in episode.acts if act.speaker == me]
        texts = ["\n".join(act.text for act in own)]
        schema, critic = _question(self.critic, judge.hidden)
        review: Any = await judge.ask(
            schema, critic, self._record(row, episode), policy_texts=texts, min_words=MIN_WORDS
        )
        scores = {name: getattr(review, name).score for name in RANGES if name not in judge.hidden}
        counted = dict.fromkeys(RANGES, 0.0) | scores
        metrics = {"overall": headline_of(counted), "weighted": weighted_of(counted)}
        metrics |= {name: float(score) for name, score in scores.items()}
        if "secret" in scores and row.of(row.eval_position, "secret"):
            metrics["secret_kept"] = float(scores["secret"] == 0)
        metrics["turns"] = float(len(episode.acts))
        metrics["left"] = float(any(act.kind == "leave" for act in own))
        metrics["well_formed"] = sum(act.well_formed for act in own) / len(own)
        metrics["answered"] = 1 - self._without_object(episode) / len(own)
        return Verdict(metrics[self.headline.name], metrics, review.critique)

    def _without_object(self, episode: Episode) -> int:
        """The number of the policy's turns without a readable JSON object; their whole text counts as spoken."""
        own = [m["content"] for seat in episode.seats.values() for m in seat if m["role"] == "assistant"]
        return sum(_read_object(without_thinking(text).strip()) is None for text in own)

    def missing_form(self, row: SotopiaRow, episode: Episode) -> str | None:
        lacking = self._without_object(episode)
        if not lacking:
            return None
        return (
            f"In {lacking} of your turns there was no JSON object that could be read, so all that you wrote was heard "
            f"as your words. Write each turn as one object and nothing else: {OBJECT}"
        )

    def _record(self, row: SotopiaRow, episode: Encounter) -> dict[str, Any]:
        """The judge's data. What the policy's character could not know is separate, because the critique must not
        reveal it."""
        mine, others = row.eval_position, row.partner_position
        endings = {
            "left": f"{episode.acts[-1].speaker} left" if episode.acts else "",
            "silence": f"nothing happened for {SILENT_TURNS} turns in a row",
            "turn_limit": f"it broke off after {TURNS} turns, the maximum",
        }
        return {
            "person_to_be_judged": row.of(mine, "name"),
            "known_to_that_person": {
                "situation": row.shown(row.scenario, mine),
                "relationship": row.shown(row.relationship, mine),
                **_about(row, mine),
            },
            "hidden_from_that_person": {"the_other": _about(row, others), "for_your_eyes_only": row.notes},
            "transcript": [act.to_json(number) for number, act in enumerate(episode.acts, 1)],
            "how_it_ended": endings[episode.ended],
        }

    def secrets(self, row: SotopiaRow) -> Sequence[str]:
        return row.hidden("\n".join(message["content"] for message in self.prompt(row)))


def _about(row: SotopiaRow, position: Position) -> dict[str, str]:
    return {field: row.of(position, field) for field in FIELDS}


def read_act(text: str, speaker: str) -> Act:
    """Read a turn: the requested JSON object, alone or (not well-formed) among other words, which are dropped.

    Text without such an object counts as spoken; without any words it is a turn in which nothing happens.
    """
    bare = without_thinking(text).strip()
    found = _read_object(bare)
    if found is None:
        heard = audible(bare)
        return Act(speaker, "speak" if heard else "none", heard, well_formed=False)
    kind, argument, alone = found
    heard = audible(argument) if kind not in ("leave", "none") else ""
    return Act(speaker, kind if heard or kind == "leave" else "none", heard, alone)


def _read_object(text: str) -> tuple[Kind, str, bool] | None:
    """Kind and argument of the first object that is a turn, and whether it is the whole text; None if there is none.

    Strings in it may contain line breaks.
    """
    fenced = _FENCE.fullmatch(text)
    text = fenced.group(1).strip() if fenced else text
    decoder = json.JSONDecoder(strict=False)
    position = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if position < 0:
            break
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            value, end = None, position + 1
        if isinstance(value, dict):
            kind, argument = _kind(value.get("action_type")), value.get("argument")
            if kind is not None and isinstance(argument, str | None):
                return kind, argument or "", position == 0 and end == len(text)
        position = text.find("{", end)
    return None


def _kind(name: Any) -> Kind | None:
    """The kind with that name, ignoring case, spaces and hyphens; None if there is none."""
    if not isinstance(name, str):
        return None
    bare = re.sub(r"[\W_]+", "", name).lower()
    return next((kind for kind in get_args(Kind) if re.sub(r"\W+", "", kind) == bare), None)
