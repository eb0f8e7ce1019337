"""CoSER: the characters of a book act one of its scenes (Wang et al., 2026, given-circumstance acting).

The policy plays every character, one seat each. After each turn an environment model decides who speaks next, and it
narrates what happens around the characters. No scene ends before the characters have had six turns in total. A judge
compares the scene with the one in the book and lists flaws with severities from 1 to 5 in four dimensions, one call
each (protocol and score: paper, appendix C.7).

Two metrics need no judge and equal the values in CoSER's published files: `bleu` (BLEU-4 of NLTK 3) and `rouge_l` (F1
of the longest common subsequence of words), over texts in which the speakers' names precede the turns.
"""

import random
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, Field, model_validator

from soul.judge import Judge, Role
from soul.judge.call.untrusted import require_content
from soul.judge.judge import all_answers
from soul.leaks.quotations import runs
from soul.message import Message
from soul.metrics.ngram import bleu, rouge_l
from soul.policy import Players
from soul.prompts import Prompt, load_prompt
from soul.row_fields import drop_empty_groups
from soul.task import Task
from soul.task_types import BOOK, Episode, GroupKey, Metric, Strata, Verdict
from soul.tasks.coser_stage import (
    END,
    ENVIRONMENT,
    OPENING,
    CoSERRow,
    Part,
    Scene,
    SpokenLine,
    audible,
    character_lines,
    same_name,
)

DIMENSIONS = ("storyline_consistency", "anthropomorphism", "character_fidelity", "storyline_quality")
CRITICS: Mapping[str, Prompt] = {name: load_prompt(f"coser/{name}") for name in DIMENSIONS}
MAJORS_ONLY = "character_fidelity"  # the dimension in which only the major characters are judged


class Flaw(BaseModel):
    """One flaw of a scene."""

    flaw: str = Field(min_length=1)
    severity: int = Field(ge=1, le=5)


class DimensionReview(BaseModel):
    """The judge's answer for one dimension."""

    flaws: list[Flaw]
    critique: str

    @model_validator(mode="after")
    def _flaws_have_a_critique(self) -> Self:
        if self.flaws and not self.critique.strip():
            raise ValueError("there are flaws but no critique: say what to do differently")
        return self


Review = tuple[dict[str, list[Flaw]], str | None]  # the flaws by dimension, and advice for the cast


def dimension_score(severities: Iterable[int], turns: int) -> float:
    """The score of one dimension in [0, 1]: clip(100 - 5 * (sum of severities - 0.3 * turns), 0, 100) / 100.

    A scene in which the characters have more turns is allowed more slips.
    """
    points = 100 - 5 * sum(severities) + 1.5 * turns
    return min(max(points, 0.0), 100.0) / 100


async def review(judge: Judge, context: Mapping[str, Any], majors: Sequence[str]) -> Review:
    """Ask about each dimension in its own call, all concurrently; only the call about fidelity names the majors."""
    about_fidelity = {**context, "major_characters": list(majors)}
    calls = [
        judge.ask(DimensionReview, critic, about_fidelity if name == MAJORS_ONLY else context)
        for name, critic in CRITICS.items()
    ]
    reviews = dict(zip(DIMENSIONS, await all_answers(*calls), strict=True))
    critiques = {name.replace("_", " ").capitalize(): one.critique.strip() for name, one in reviews.items()}
    advice = "\n".join(f"{name}: {critique}" for name, critique in critiques.items() if critique)
    return {name: one.flaws for name, one in reviews.items()}, advice or None


MAX_ROUNDS = 20  # turns of a scene, including the narrator's
# Turns of characters before a scene may end: the paper's scenes have 6 to 20 of them. Its "minimum of 5 rounds" is
# `i_round >= 5` in CoSER's public code, counted from 0, so that means six turns too (but includes the narrator's).
MIN_TURNS = 6
MIN_WORDS = 10  # a cast that says less in a whole scene counts as silent
QUOTE_WORDS = 5  # this many words in a row of the book's conversation count as a quotation

HOW_TO_ACT, REHEARSAL = load_prompt("coser/how_to_act"), load_prompt("coser/rehearsal")
_CLAUSE_ENDS = re.compile(r"[.!?;:()\"\u201c\u201d\u2026\u2014]+")


class NextSpeaker(BaseModel):
    """The next-speaker predictor's answer."""

    reasoning: str
    next_speaker: str = Field(min_length=1)


class CoSER(Task[CoSERRow]):
    """Act the scene in which Mr Bennet calls Elizabeth into his study."""

    name = "coser"
    version = 4  # 4: characters know the plot summary; BLEU and ROUGE-L as in the published files
    row_type = CoSERRow
    episode_type = Scene
    headline = Metric("overall", source="paper, appendix C.7 and table 1; mean of the four dimensions")
    better = dict.fromkeys((*DIMENSIONS, "bleu", "rouge_l", "answered"), "higher")
    strata = Strata("books")
    # The paper reports 14.2 turns of characters per scene: one choice of speaker after each, and a few narrator turns.
    calls_per_episode: Mapping[Role, float] = {"judge": 4.0, "environment": 18.0}
    cuts = (("shown_profiles", "start"),)
    policy_turns = 14.2
    predictor = load_prompt("coser/next_speaker", 4)
    narrator = load_prompt("coser/environment", 2)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (*CRITICS.values(), self.predictor, self.narrator)

    def check(self, row: CoSERRow) -> None:
        if not row.cast:
            raise ValueError("speaking_characters_w_env: only the Environment speaks")
        names = [same_name(name) for name in (*row.cast, ENVIRONMENT, END)]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"speaking_characters_w_env: {twice[0]!r} names two speakers")
        if not row.reference:
            raise ValueError("dialogues: nobody says anything")

    def groups(self, row: CoSERRow) -> Mapping[str, str]:
        return drop_empty_groups({"books": row.tag})

    def group_keys(self, row: CoSERRow) -> Sequence[GroupKey]:
        plot = f"{row.book}: {row.plot_summary or row.scenario}"
        return [
            GroupKey.from_title(row.book),
            GroupKey.from_text("plot", plot),
            GroupKey.from_text("scene", row.scenario),
        ]

    def held_out_keys(self, row: CoSERRow) -> Sequence[GroupKey]:
        # Other plots of an in-distribution book are training data. An out-of-distribution book is held out entirely.
        return [key for key in self.group_keys(row) if key.kind != BOOK or row.tag.casefold() == "ood"]

    def prompt(self, row: CoSERRow, feedback: str | None = None) -> list[Message]:
        seats = [self._instructions(row, name, feedback) for name in row.cast]
        return [max(seats, key=lambda message: len(message["content"])), {"role": "user", "content": OPENING}]

    def secrets(self, row: CoSERRow) -> Sequence[str]:
        clauses = [words.split() for line in row.reference for words in _CLAUSE_ENDS.split(line.text)]
        long = [clause for clause in clauses if len(clause) >= QUOTE_WORDS]
        quotations = [words for clause in long for words in (clause, *runs(clause, QUOTE_WORDS))]  # or half a clause
        return tuple(dict.fromkeys(map(" ".join, quotations)))

    def _instructions(self, row: CoSERRow, name: str, feedback: str | None) -> Message:
        others = [(other, row.portrait(other, shown=True)) for other in row.cast if other != name]
        company = "\n\n".join(f"### {other}\n{text or '(You know only the name.)'}" for other, text in others)
        sections = [
            f'You are an actor, and you play {name} in a scene from "{row.book}". Think, feel and speak as {name} '
            f"does, using only what {name} can know at this moment; never as an assistant, a narrator or an author.",
            _section(f"Your character: {name}", row.portrait(name, shown=True)),
            _section("The plot around this scene", row.plot_summary.strip()),
            _section("The scene", row.scenario),
            _section("The other characters", company),
            _section(f"What drives {name} now (nobody else knows this)", row.motivation(name)),
            HOW_TO_ACT.fill(name=name),
            REHEARSAL.fill(name=name, feedback=feedback) if feedback is not None else "",
        ]
        return {"role": "system", "content": "\n\n".join(section for section in sections if section)}

    async def play(self, row: CoSERRow, players: Players, feedback: str | None) -> Scene:
        parts: dict[str, Part] = {}
        lines: list[SpokenLine] = []
        speaker, ended = row.speakers[0], "round_limit"
        for round_ in range(1, MAX_ROUNDS + 1):
            if speaker not in parts:
                parts[speaker] = self._part(row, speaker, feedback)
            part, narrates = parts[speaker], speaker == ENVIRONMENT
            part.listen(lines)
            turn = await (part.take_model(players.environment) if narrates else part.take_seat(players.policy(speaker)))
            others = [name for name in (*row.cast, ENVIRONMENT) if name != speaker]
            lines.append(SpokenLine(speaker, audible(turn, speaker, others)))
            if round_ == MAX_ROUNDS:
                break
            speaker = await self._next_speaker(row, lines, others, players.environment)
            if speaker == END:
                ended = "closed"
                break
        seats = {name: parts[name].messages for name in row.cast if name in parts}
        return Scene(seats, ended, tuple(lines))

    def _part(self, row: CoSERRow, name: str, feedback: str | None) -> Part:
        if name == ENVIRONMENT:
            cast = _section("Characters that others play", ", ".join(row.cast))
            narration = f"{self.narrator}\n\n{_section('The scene', row.scenario)}\n\n{cast}"
            return Part(name, {"role": "system", "content": narration})
        return Part(name, self._instructions(row, name, feedback), self._instructions(row, name, None))

    async def _next_speaker(
        self, row: CoSERRow, lines: Sequence[SpokenLine], others: list[str], environment: Judge
    ) -> str:
        """The speaker after these lines, or `END`. Nobody speaks twice in a row."""
        candidates = [*others, END] if len(character_lines(lines)) >= MIN_TURNS else others
        data = {
            "scenario": row.scenario,
            "conversation": [str(line) for line in lines],
            "last_speaker": lines[-1].speaker,
            "candidates": candidates,
        }
        named = same_name((await environment.ask(NextSpeaker, self.predictor, data)).next_speaker)
        if chosen := next((name for name in candidates if same_name(name) == named), None):
            return chosen
        # Exactly one candidate must be named. Otherwise the stand-in is the same every time the row is played.
        main = [name for name in others if name in row.majors or name == ENVIRONMENT]
        return random.Random(f"coser:{row.index}:{len(lines)}").choice(main or others)

    async def judge(self, row: CoSERRow, episode: Episode, judge: Judge) -> Verdict:
        assert isinstance(episode, Scene), episode
        own = character_lines(episode.lines)
        require_content([line.text for line in own], MIN_WORDS)
        reference = [str(line) for line in row.reference]
        context = {
            "book": row.book,
            "plot_summary": row.plot_summary,
            "scenario": row.scenario,
            "characters": {name: row.portrait(name) for name in row.cast},
            "reference": reference,
            "simulation": [str(line) for line in episode.lines],
        }
        by_dimension, critique = await review(judge, context, row.majors)
        severities = {name: [flaw.severity for flaw in flaws] for name, flaws in by_dimension.items()}
        scores = {name: dimension_score(found, episode.turns) for name, found in severities.items()}
        simulated = "\n\n".join(str(line) for line in episode.lines if line.text)
        book = "\n\n".join(reference)
        overlap = {"bleu": bleu(simulated, book), "rouge_l": rouge_l(simulated, book)}
        reward = statistics.fmean(scores.values())
        answered = statistics.fmean(bool(line.text) for line in own)
        metrics = {self.headline.name: reward, **scores, **overlap, "turns": float(episode.turns), "answered": answered}
        return Verdict(reward, metrics, critique)

    def missing_form(self, row: CoSERRow, episode: Episode) -> str | None:
        lines = character_lines(episode.lines) if isinstance(episode, Scene) else []
        unheard = sum(not line.text for line in lines)
        if not unheard:
            return None
        return (
            f"In {unheard} of {len(lines)} turns of the characters nothing was heard or seen. What is in square "
            "brackets is a thought, which nobody hears, and a bracket that is not closed hides all that follows. "
            "Write [what the character thinks], then what the character says, then (what the character does)."
        )


def _section(title: str, text: str) -> str:
    return f"## {title}\n{text}" if text else ""
