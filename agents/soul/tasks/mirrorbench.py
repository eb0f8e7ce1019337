"""MirrorBench: play the user of an AI assistant so that nobody can tell it from a person (Hathidara et al., 2026).

The policy gets a description of what a real user wanted and writes all the user turns. The assistant's turns are those
of the real conversation (paper, C.9, "Our adaptation"), or a model's, which knows the real conversation
(`MirrorBench(assistant="model")`, the benchmark's own way). Reward: the mean of three judgments (GTEval, pairwise
indistinguishability, rubric-and-reason) and of a lexical score.

A judgment is the mean of several samples, each a call of its own: one of GTEval, three of pairwise, in which A and B
change places, and two of rubric-and-reason, as in the benchmark's published runs. `MirrorBench(judge_samples=1)` (in a
run: `tasks.mirrorbench.judge_samples=1`) asks once for each, which halves the price. The paper contradicts itself about
the judge: section 5 has gpt-5-nano for every task but CoSER, section C.9 has GPT-5.4 for MirrorBench. Here it is
gpt-5-nano.

The lexical score compares the policy's turns with the real user's of the same conversation in MATTR, HD-D and Yule's K,
in units of the standard deviation over MirrorBench's real users: within one is full marks, three apart is nothing
(`soul.metrics.lexical.likeness`). This is the difference of their z-scores, from which the mean cancels. The mean of
the set alone would be the wrong mark: a real user far from it would lose points against themselves. The deviation is
that of all four subsets together, because almost no QuLAC answer repeats a word, and a unit that small would measure
length. With this reading the paper's four examples have the overall rewards that the paper prints; with a deviation or
a mean a subset they do not. The benchmark's own z-scores, a subset each, are reported as metrics.

The lexical score has a blind spot: it measures how varied the words are, not what they say. Every text that repeats no
word has full diversity, so without a guard a lone word such as "ok" scores 0.87 in Chatbot Arena, 0.51 in ClariQ,
0.87 in OASST1 and 0.99 in QuLAC. Two rules guard it (`soul.metrics.lexical.lexical_score`). A text of less than half
the human's length gets a share in proportion, and one word never gets more than a fifth: the same word scores 0.12,
0.04, 0.08 and 0.18. Where the human wrote fewer than five words (34 of 547 conversations) there is no lexical score,
and the reward is the mean of the three judgments. The rest of the blind spot stays: a fixed answer of five different
words scores 0.91 in QuLAC, where people answer in eight words. Only the three judgments can tell it from a real answer.
(A policy that says nothing but "ok" gets 0 and is not judged: the judge gateway counts "ok" as an empty answer.)

The last assistant turn of a record has no user turn after it; nobody gets to see it. It answers the real user, and
would only tell the judge which conversation is real.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from soul.answers.thinking import without_thinking
from soul.judge import Judge, Role
from soul.judge.call.untrusted import as_json, neutral, require_content
from soul.message import Message
from soul.metrics.lexical import Lexis, lexical_score, lexis
from soul.one_turn import feedback_paragraph
from soul.policy import Players
from soul.prompts import Prompt, load_prompt
from soul.rows.leaks import WITHHELD
from soul.rows.parsing import Label, as_list, drop_empty_groups
from soul.rows.quotations import runs
from soul.task import Episode, GroupKey, Metric, NotBlank, Row, Strata, Task, Verdict
from soul.tasks.mirrorbench_judges import (
    GTEVAL_INSTRUCTIONS,
    PAIRWISE_INSTRUCTIONS,
    PUBLISHED_SAMPLES,
    RUBRIC_INSTRUCTIONS,
    Conversation,
    Judgments,
    Samples,
    judgments,
)

Assistant = Literal["record", "model"]

RULES = """\
You play a person who writes to an AI assistant. You write this person's messages; the messages you get are the \
assistant's. Answer each with the person's next message and with nothing else: no name before it, no quotation marks \
around it, no remarks on it. Write the way this person would type, in length, wording, spelling and tone, and tell no \
more at a time than this person would. Never answer, help or explain: that is the assistant's part."""

OPENING = "(The conversation begins here. Write your first message to the assistant.)"
BEGUN = "(The user opens the conversation.)"  # to a model as assistant, where the record's assistant speaks first
SILENCE = "..."  # what a model as assistant hears of a turn that says nothing

# Real users of MirrorBench: the deviation over all, and mean and deviation a subset. From 547 published conversations
# (135, 148, 127, 137); the test of data.mirrorbench computes them anew.
DEVIATION = Lexis(mattr=0.13450, hdd=0.12977, yules_k=127.027)
HUMANS: Mapping[str, tuple[Lexis, Lexis]] = MappingProxyType(
    {
        "chatbot_arena": (Lexis(0.89828, 0.90425, 106.067), Lexis(0.12386, 0.11516, 161.089)),
        "clariq": (Lexis(0.71949, 0.72330, 226.113), Lexis(0.09371, 0.08993, 82.795)),
        "oasst1": (Lexis(0.85650, 0.86419, 109.973), Lexis(0.09290, 0.08418, 79.647)),
        "qulac": (Lexis(0.98488, 0.98488, 26.089), Lexis(0.03722, 0.03722, 67.104)),
    }
)

_LABEL = re.compile(r"\s*(?:\*\*)?(?:user|human)(?:\*\*)?\s*:(?:\*\*)?\s*", re.IGNORECASE)
_QUOTES = "\"'`\u2018\u2019\u201c\u201d"
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_QUOTED_WORDS = 4  # so many words in a row are a quotation


class Turn(BaseModel):
    """One turn of the real conversation; what else the record says of it stays unread."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: Literal["user", "assistant"]
    content: NotBlank


class MirrorBenchRow(Row):
    """What the user wants, and the real conversation."""

    task_description: NotBlank
    turns: tuple[Turn, ...] = Field(validation_alias=AliasChoices("turns", "conversation"))
    dataset: str = ""  # the subset, a key of HUMANS; another has no z-scores

    conversation_id: Label = ""  # the source's id; Chatbot Arena adds "::MODEL"
    group: Label = ""  # "topic-12" where the source has topics

    @field_validator("turns", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return as_list(value)

    @property
    def conversation(self) -> list[Message]:
        """The real conversation up to the last user turn, turns of one role in a row made one."""
        merged: list[Message] = []
        for turn in self.turns:
            if merged and merged[-1]["role"] == turn.role:
                merged[-1]["content"] += f"\n{turn.content}"
            else:
                merged.append({"role": turn.role, "content": turn.content})
        return merged[:-1] if merged and merged[-1]["role"] == "assistant" else merged

    @property
    def user_turns(self) -> list[str]:
        """What the real user wrote."""
        return user_turns(self.conversation)


class MirrorBench(Task[MirrorBenchRow]):
    """Ask for directions to the library as somebody in a hurry did.

    Args:
        assistant: who speaks the assistant's turns: the "record", or a "model" (the partner of the players).
        judge_samples: how often to ask for each of the three judgments; None: as often as in the published runs.
    """

    name = "mirrorbench"
    version = 2
    row_type = MirrorBenchRow
    headline = Metric("overall", source="paper, section C.9, overall reward of the examples")
    strata = Strata("dataset")
    calls_per_episode: Mapping[Role, float] = {"judge": sum(PUBLISHED_SAMPLES)}  # type: ignore[misc]  # of an instance
    policy_turns = 2.1  # user turns of a published conversation
    substitute = load_prompt("mirrorbench/assistant")  # instructions of a model as assistant

    def __init__(self, *, assistant: str = "record", judge_samples: int | None = None) -> None:
        if assistant not in get_args(Assistant):
            raise ValueError(f"assistant={assistant!r}: use {' or '.join(get_args(Assistant))}")
        if judge_samples is not None and (type(judge_samples) is not int or judge_samples < 1):
            raise ValueError(f"judge_samples={judge_samples!r}: use a whole number of at least 1, or null")
        self.assistant = assistant
        self.samples = PUBLISHED_SAMPLES if judge_samples is None else Samples(*[judge_samples] * len(Samples._fields))
        # A model as assistant is asked between user turns: 1.1 times in a published conversation.
        others: dict[Role, float] = {"partner": 1.1} if assistant == "model" else {}
        self.calls_per_episode = {"judge": float(sum(self.samples)), **others}
        if judge_samples != 1:
            self.cheaper = {"judge_samples=1": {"judge": float(len(self.samples)), **others}}

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        judges = (GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS)
        return (*judges, self.substitute) if self.assistant == "model" else judges

    def check(self, row: MirrorBenchRow) -> None:
        if not row.user_turns:
            raise ValueError("turns: no turn has the role user, so there is nobody to play")

    def secrets(self, row: MirrorBenchRow) -> Sequence[str]:
        return [turn for turn in row.user_turns if len(turn.split()) > 1]  # parts of them: `without_quotations`

    def human_answer(self, row: MirrorBenchRow) -> str:
        return "\n\n".join(row.user_turns)

    def prompt(self, row: MirrorBenchRow, feedback: str | None = None) -> list[Message]:
        instructions = f"{RULES}\n\nWhat this person wants, and how:\n{row.task_description}"
        advice = feedback_paragraph(feedback).rstrip()
        first = row.conversation[0]
        return [
            {"role": "system", "content": f"{instructions}\n\n{advice}" if advice else instructions},
            {"role": "user", "content": first["content"] if first["role"] == "assistant" else OPENING},
        ]

    async def play(self, row: MirrorBenchRow, players: Players, feedback: str | None) -> Episode:
        seat, record = players.policy(), row.conversation
        messages, base = self.prompt(row, feedback), self.prompt(row)
        begins = 1 if record[0]["role"] == "assistant" else 0
        for place in range(begins, len(record), 2):
            if place > begins:
                reply = record[place - 1]["content"]
                if self.assistant == "model":
                    reply = await self._reply(row, messages, players)
                for seen in (messages, base):
                    seen.append({"role": "user", "content": reply})
            said = await seat.say(list(messages), base=list(base))
            for seen in (messages, base):
                seen.append({"role": "assistant", "content": said})
        return Episode({"policy": messages}, ended="record_over")

    async def _reply(self, row: MirrorBenchRow, messages: Sequence[Message], players: Players) -> str:
        """The next assistant turn of a model that sees what was said, and the real conversation."""
        # (Neutral: control tokens must not reach the other side's chat template, and half a surrogate cannot be sent.)
        said: list[Message] = [
            {"role": turn["role"], "content": neutral(turn["content"]).strip() or SILENCE}
            for turn in conversation(messages)
        ]
        if said[0]["role"] == "assistant":
            said.insert(0, {"role": "user", "content": BEGUN})
        instructions = self.substitute.fill({"reference": as_json({"turns": row.conversation})})
        reply = await players.partner.chat([{"role": "system", "content": instructions}, *said])
        return without_thinking(reply).strip() or SILENCE

    def groups(self, row: MirrorBenchRow) -> Mapping[str, str]:
        return drop_empty_groups({"dataset": row.dataset})

    def group_keys(self, row: MirrorBenchRow) -> Sequence[GroupKey]:
        source, topic = row.conversation_id.partition("::")[0], row.group if row.group.startswith("topic-") else ""
        # If the assistant asks first, the key includes its question: many users answer "no".
        first = next(place for place, turn in enumerate(row.turns) if turn.role == "user")
        opening = " ".join(turn.content for turn in row.turns[: first + 1])
        keys = {"opening": opening, "topic": topic, "source": f"{row.dataset} {source}" if source else ""}
        return [GroupKey.from_text(kind, value) for kind, value in keys.items() if value]

    async def judge(self, row: MirrorBenchRow, episode: Episode, judge: Judge) -> Verdict:
        simulated = conversation(episode.seats["policy"])
        said = user_turns(simulated)
        require_content(said, 1)
        found = await judgments(judge, row.conversation, simulated, row.index, self.samples)
        scores = found.scores
        lexical = lexical_score(said, row.user_turns, DEVIATION)
        if lexical is not None:
            scores["lexical"] = lexical
        reward = statistics.fmean(scores.values())
        metrics = {self.headline.name: reward, **scores, **_measures(row, lexis(said))}
        return Verdict(reward, metrics, _critique(found))

    async def feedback(self, row: MirrorBenchRow, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        return without_quotations(verdict.critique, row.user_turns) if verdict.critique else None


def conversation(messages: Sequence[Message]) -> list[Message]:
    """What was said, the policy as the user: without instructions, cue, think blocks and labels."""
    turns = [message for message in messages if message["role"] != "system"]
    if turns and turns[0] == {"role": "user", "content": OPENING}:
        del turns[0]
    return [
        {"role": "user", "content": spoken(turn["content"])}
        if turn["role"] == "assistant"
        else {"role": "assistant", "content": turn["content"]}
        for turn in turns
    ]


def spoken(text: str) -> str:
    """What others hear of a turn of the policy: no think block, no "User:" before it."""
    said = without_thinking(text).strip()
    label = _LABEL.match(said)
    return said[label.end() :] if label else said


def user_turns(turns: Conversation) -> list[str]:
    """What the user of a conversation wrote."""
    return [turn["content"] for turn in turns if turn["role"] == "user"]


async def human_control(row: MirrorBenchRow, judge: Judge) -> dict[str, float]:
    """HH: the real conversation against itself. A sound judge gives GTEval 1, and pairwise 0.5 over many rows."""
    return (await judgments(judge, row.conversation, row.conversation, row.index)).scores


async def proxy_control(row: MirrorBenchRow, episode: Episode, judge: Judge) -> dict[str, float]:
    """PP: the simulated conversation against itself; as `human_control`, on texts of the policy's kind.

    Raises:
        Contentless: the policy said nothing.
    """
    simulated = conversation(episode.seats["policy"])
    require_content(user_turns(simulated), 1)
    return (await judgments(judge, simulated, simulated, row.index)).scores


def _measures(row: MirrorBenchRow, values: Lexis | None) -> dict[str, float]:
    """The lexical measures of the policy's turns, and their z-scores among the real users of the row's subset."""
    if values is None:
        return {}
    measures = values._asdict()
    if row.dataset in HUMANS:
        mean, deviation = HUMANS[row.dataset]
        measures |= {f"{n}_z": (v - m) / d for n, v, m, d in zip(Lexis._fields, values, mean, deviation, strict=True)}
    return measures


def _critique(found: Judgments) -> str | None:
    """What two judges wrote, the first sample of each. The third compared A with B, which says nothing to one who saw
    neither."""
    notes = [
        ("Compared with the real user's messages, yours (the simulated user's): ", found.gteval[0].reasoning),
        ("Of your messages alone, whether a person could have typed them: ", found.rubric_and_reason[0].reasoning),
    ]
    return "\n".join(intro + text.strip() for intro, text in notes if text.strip()) or None


def without_quotations(text: str, turns: Sequence[str]) -> str:
    """The text with everything withheld that a turn has too: four words in a row, all words of a shorter turn, and of a
    turn of one word that word in quotation marks."""
    spans = [match.span() for match in _WORD.finditer(text)]
    spoken_words = [_word(text[start:end]) for start, end in spans]
    quoted: set[int] = set()
    for turn in turns:
        told = [_word(word) for word in _WORD.findall(turn)]
        if len(told) == 1:
            marked = [text[start - 1 : start] in _QUOTES and start > 0 for start, _ in spans]
            quoted |= {at for at, word in enumerate(spoken_words) if word == told[0] and marked[at]}
            continue
        size = min(_QUOTED_WORDS, len(told))
        parts = set(runs(told, size)) if told else set()
        for at, run in enumerate(runs(spoken_words, size)):
            if run in parts:
                quoted.update(range(at, at + size))
    kept, end = "", 0
    for at, (start, stop) in enumerate(spans):
        if at in quoted:
            kept += "" if at - 1 in quoted else text[end:start] + WITHHELD
            end = stop
    return kept + text[end:]


def _word(word: str) -> str:
    return word.lower().replace("\u2019", "'")
