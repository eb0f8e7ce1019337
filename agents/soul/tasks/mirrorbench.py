"""MirrorBench: play the user of an AI assistant so that nobody can tell it from a person (Hathidara et al., 2026).

The policy gets a description of what a real user wanted and writes all the user turns. The assistant's turns are
replayed from the real conversation (paper, C.9, "Our adaptation"). Reward: the mean of three judgments (GTEval,
pairwise indistinguishability, rubric-and-reason) and a lexical score.

Each judgment is the mean of several samples, one call each: one of GTEval, three of pairwise (A and B alternate) and
two of rubric-and-reason, as in the benchmark's published runs; `judge_samples=1` halves the price. The paper names
gpt-5-nano (section 5) and GPT-5.4 (section C.9) as the judge; we use gpt-5-nano.

The lexical score compares the policy's turns with the real user's turns of the same conversation in MATTR, HD-D and
Yule's K over GPT-4o's tokens. The unit is the standard deviation over MirrorBench's 795 real users: a difference within
one deviation gets full marks, three deviations get nothing. With this reading the paper's four examples get the overall
rewards that the paper prints; with a deviation or a mean per subset they do not. The score measures how varied the
tokens are, not what they say, so a text far shorter than the human's is scaled down (`soul.metrics.lexical`). If the
human wrote fewer than five tokens, there is no lexical score. The z-scores per subset are metrics.

Neither the policy nor the judge sees an assistant turn at the end of a record: it would only tell the judge which
conversation is real.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from soul.answers.thinking import spoken_as_user
from soul.dialogue import View
from soul.judge import Judge, Role
from soul.judge.call.untrusted import contentless, require_content
from soul.judge.mirrorbench_judgments import (
    GTEVAL_INSTRUCTIONS,
    PAIRWISE_INSTRUCTIONS,
    PUBLISHED_SAMPLES,
    RUBRIC_INSTRUCTIONS,
    Conversation,
    Judgments,
    Samples,
    judgments,
)
from soul.leaks.quotations import runs
from soul.message import Message
from soul.metrics.lexical import Lexis, lexical_score, lexis
from soul.one_turn import with_feedback
from soul.policy import Players
from soul.prompts import Prompt, load_prompt
from soul.row_fields import Label, Listed, drop_empty_groups
from soul.task import Task
from soul.task_types import Episode, GroupKey, Metric, NotBlank, Row, Strata, Verdict

PROMPT = load_prompt("mirrorbench/policy")
OPENING = "(The conversation begins here. Write your first message to the assistant.)"
# Real users of MirrorBench: the deviation over all of them, and mean and deviation per subset. Computed from the 795
# published conversations (195, 200, 200, 200); the test of data.mirrorbench recomputes them.
DEVIATION = Lexis(mattr=0.12072, hdd=0.11375, yules_k=102.203)
HUMANS: Mapping[str, tuple[Lexis, Lexis]] = MappingProxyType(
    {
        "chatbot_arena": (Lexis(0.90236, 0.90895, 88.261), Lexis(0.11434, 0.10591, 128.838)),
        "clariq": (Lexis(0.75658, 0.76436, 163.428), Lexis(0.08932, 0.08225, 63.403)),
        "oasst1": (Lexis(0.86133, 0.87228, 96.296), Lexis(0.09554, 0.08602, 86.938)),
        "qulac": (Lexis(0.98312, 0.98312, 28.147), Lexis(0.03915, 0.03915, 68.384)),
    }
)

_CLAUSE_ENDS = re.compile(r"[.,!?;:()\"\u201c\u201d\u2026]+(?=\s|$)|[()\n]+")
QUOTED_WORDS = 4  # this many words in a row are a quotation, which feedback must not contain


class Turn(BaseModel):
    """One turn of the real conversation. Other fields of the record are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: Literal["user", "assistant"]
    content: NotBlank


class MirrorBenchRow(Row):
    """The user's aim, and the real conversation."""

    task_description: NotBlank
    turns: Annotated[tuple[Turn, ...], Listed] = Field(validation_alias=AliasChoices("turns", "conversation"))
    dataset: str = ""  # the subset, a key of HUMANS; other names get no z-scores

    conversation_id: Label = ""  # the source's id; Chatbot Arena adds "::MODEL"
    group: Label = ""  # "topic-12" if the source has topics

    @property
    def conversation(self) -> list[Message]:
        """The real conversation up to the last user turn; consecutive turns of one role are joined."""
        merged: list[Message] = []
        for turn in self.turns:
            if merged and merged[-1]["role"] == turn.role:
                merged[-1]["content"] += f"\n{turn.content}"
            else:
                merged.append({"role": turn.role, "content": turn.content})
        return merged[:-1] if merged and merged[-1]["role"] == "assistant" else merged

    @property
    def user_turns(self) -> list[str]:
        """The real user's turns."""
        return user_turns(self.conversation)


class MirrorBench(Task[MirrorBenchRow]):
    """Ask an assistant for directions to the library as a person in a hurry would.

    Args:
        judge_samples: samples of each of the three judgments; None: as many as in the published runs.
    """

    name = "mirrorbench"
    version = 3  # 3: GPT-4o's tokens
    row_type = MirrorBenchRow
    headline = Metric("overall", source="paper, section C.9, overall reward of the examples")
    # Not the lexical measures themselves: what is right is a person's value of each, neither more nor less.
    better = dict.fromkeys(("gteval", "pairwise", "rubric_and_reason", "lexical", "answered"), "higher")
    strata = Strata("dataset")
    calls_per_episode: Mapping[Role, float] = {"judge": sum(PUBLISHED_SAMPLES)}
    policy_turns = 2.1  # mean number of user turns in a published conversation

    def __init__(self, *, judge_samples: int | None = None) -> None:
        if judge_samples is not None and (type(judge_samples) is not int or judge_samples < 1):
            raise ValueError(f"judge_samples={judge_samples!r}: use a whole number of at least 1, or null")
        self.samples = Samples(*[judge_samples] * len(Samples._fields)) if judge_samples else PUBLISHED_SAMPLES
        self.calls_per_episode = {"judge": float(sum(self.samples))}

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS)

    def check(self, row: MirrorBenchRow) -> None:
        if not row.user_turns:
            raise ValueError("turns: no turn has the role user, so there is nobody to play")

    def secrets(self, row: MirrorBenchRow) -> Sequence[str]:
        turns = [turn for turn in row.user_turns if len(turn.split()) > 1]
        clauses = [clause.split() for turn in turns for clause in _CLAUSE_ENDS.split(turn)]
        parts = [" ".join(words) for clause in clauses for words in runs(clause, QUOTED_WORDS)]
        return tuple(dict.fromkeys([*turns, *parts]))

    def prompt(self, row: MirrorBenchRow, feedback: str | None = None) -> list[Message]:
        instructions = PROMPT.fill(wish=row.task_description)
        first = row.conversation[0]
        return [
            {"role": "system", "content": with_feedback(instructions, feedback)},
            {"role": "user", "content": first["content"] if first["role"] == "assistant" else OPENING},
        ]

    async def play(self, row: MirrorBenchRow, players: Players, feedback: str | None) -> Episode:
        seat, record = players.policy(), row.conversation
        user = View(self.prompt(row, feedback), self.prompt(row))
        begins = 1 if record[0]["role"] == "assistant" else 0
        for place in range(begins, len(record), 2):
            if place > begins:
                user.hear(record[place - 1]["content"])
            await user.take_seat(seat)
        return Episode({"policy": user.messages}, ended="record_over")

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
        texts = user_turns(simulated)
        require_content(texts, 1)
        lexical = lexical_score(texts, row.user_turns, DEVIATION)
        judged = await judgments(judge, row.conversation, simulated, row.index, self.samples)
        scores = judged.scores
        if lexical is not None:
            scores["lexical"] = lexical
        reward = statistics.fmean(scores.values())
        answered = 1 - sum(map(contentless, texts)) / len(texts)
        metrics = {self.headline.name: reward, **scores, **_measures(row, lexis(texts)), "answered": answered}
        return Verdict(reward, metrics, _critique(judged))

    def missing_form(self, row: MirrorBenchRow, episode: Episode) -> str | None:
        texts = user_turns(conversation(episode.seats["policy"]))
        empty = sum(map(contentless, texts))
        if not empty:
            return None
        return (
            f"In {empty} of your {len(texts)} turns there was no message outside of your thoughts. Write the person's "
            "next message, and nothing else, in every turn."
        )


def conversation(messages: Sequence[Message]) -> list[Message]:
    """The conversation with the policy as the user, without instructions, opening cue, think blocks and labels."""
    turns = [message for message in messages if message["role"] != "system"]
    if turns and turns[0] == {"role": "user", "content": OPENING}:
        del turns[0]
    return [
        {"role": "user", "content": spoken_as_user(turn["content"])}
        if turn["role"] == "assistant"
        else {"role": "assistant", "content": turn["content"]}
        for turn in turns
    ]


def user_turns(turns: Conversation) -> list[str]:
    """The user's texts in a conversation."""
    return [turn["content"] for turn in turns if turn["role"] == "user"]


def _measures(row: MirrorBenchRow, values: Lexis | None) -> dict[str, float]:
    """The lexical measures of the policy's turns, and their z-scores among the real users of the row's subset."""
    if values is None:
        return {}
    measures = values._asdict()
    if row.dataset in HUMANS:
        mean, deviation = HUMANS[row.dataset]
        measures |= {f"{n}_z": (v - m) / d for n, v, m, d in zip(Lexis._fields, values, mean, deviation, strict=True)}
    return measures


def _critique(judged: Judgments) -> str | None:
    """The reasoning of two judgments, the first sample of each. The pairwise one is about A and B, which mean nothing
    to the policy."""
    notes = [
        ("Your messages (the simulated user's) compared with the real user's: ", judged.gteval[0].reasoning),
        ("Whether a person could have typed your messages: ", judged.rubric_and_reason[0].reasoning),
    ]
    return "\n".join(intro + text.strip() for intro, text in notes if text.strip()) or None
