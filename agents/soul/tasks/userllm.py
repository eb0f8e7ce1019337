"""UserLLM: write one message as the user of an AI assistant (Naous et al., 2025); three kinds of rows.

    commonsense_qa      The user asked a question with options, and the assistant asks the user for the answer. Role
                        adherence: 0 if the turn mentions one or two of the options (the user leaks an answer), 1 if
                        none, more, or all of them (a repeated question). An option is mentioned if its words occur.
    natural_questions   The assistant does not know the answer and proposes something else. Intent adherence: the judge
                        says whether the user refused (1) or accepted (0).
    prism               An open conversation. Intent decomposition: 1 - the share of the turn's different words,
                        without stop words, that also occur in the intent. Termination: whether the turn ends the
                        conversation if and only if it is the last one. Human-likeness: by an AI detector.

The score of a set is the paper's (sections 5 and C.10): the plain mean of role adherence, intent adherence, intent
decomposition, human-likeness, the F1 of ending the conversation, and the diversity of first turns (mean Jaccard
distance between their tokens). A metric without rows in the set does not count. The reward of one episode is for
training: role adherence, intent adherence, or the mean of the scores of a single prism turn.

An intent is a high-level sentence, never the user's own words (`python -m data.userllm intents` writes them). The
detector is a judge, because the paper's Pangram is a paid service.

A prism turn may consist of the end token alone. On a true last turn the reward is 1, and there are no words to score;
on any other turn it scores 0 in everything.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, Field

from soul.judge import Judge, Role
from soul.judge.call.untrusted import require_content
from soul.message import Message
from soul.metrics.set_metrics import Outcome, SetMetric
from soul.one_turn import with_feedback
from soul.policy import Players
from soul.prompts import load_prompt
from soul.task import Task
from soul.task_types import Episode, GroupKey, Metric, Strata, Verdict
from soul.tasks.userllm_turn import (
    END,
    Turn,
    UserLLMRow,
    choices_mentioned,
    echoes,
    garbled_end,
    intent_overlap,
    loops,
    normalized,
    spoken,
    userllm_set_metrics,
)

HEADLINE = Metric(
    "episode_score",
    source="paper, section C.10, for one episode: role adherence, intent adherence, or the mean of a prism turn's own "
    "scores",
)
SET_HEADLINE = Metric(
    "mean_of_metrics",
    source="paper, sections 5 and C.10: the mean of role adherence, intent adherence, intent decomposition, "
    "human-likeness, termination F1 and first-turn diversity over the whole set",
)

ENDED_WITHOUT_A_WORD = (
    "You ended the conversation without a message. That is right only if this person has nothing more to say. Decide "
    "again whether this person would stop here or go on. If they would go on, write their next message."
)
PROMPT = load_prompt("userllm/policy")
FIRST = "The conversation has not begun. Write your first message."
NEXT = f"""\
If this person has got what they want by now, end the conversation: with {END} alone, or directly after a last \
message. Otherwise write your next message."""

_SCORES = {"commonsense_qa": "role_adherence", "natural_questions": "intent_adherence"}


class HumanLikeness(BaseModel):
    """The judge's answer as a detector."""

    reasoning: str
    human_likeness: float = Field(ge=0, le=1, allow_inf_nan=False)
    critique: str = Field(min_length=1)


class IntentAdherence(BaseModel):
    """The judge's answer about a turn that follows a proposal."""

    reasoning: str
    outcome: Literal["refused", "accepted"]
    critique: str = Field(min_length=1)


LIKENESS = load_prompt("userllm/human_likeness", 2)
ADHERENCE = load_prompt("userllm/intent_adherence", 2)


class UserLLM(Task[UserLLMRow]):
    """Ask again who wrote the song, although the assistant offers to talk about its covers.

    The reward of an episode (`episode_score`) is a stand-in for training; `set_metrics` scores a set.
    """

    name = "userllm"
    row_type = UserLLMRow
    # 4: a conversation ends when the wish is met, a turn at its end token; options are whole words, one or two are a
    # leak; overlap and diversity as in the original
    version = 4
    headline = HEADLINE
    better = {
        "answered": "higher",
        "termination_correct": "higher",
        "intent_overlap": "lower",
        "human_likeness": "higher",
        "role_adherence": "higher",
        "intent_adherence": "higher",
    }
    strata = Strata("source", equal=True)  # the paper: 600 rows of each of the three
    set_headline = SET_HEADLINE
    calls_per_episode: Mapping[Role, float] = {"judge": 2 / 3}  # two of the three sources need one
    cuts = (("conversation_history", "end"),)
    prompts = (ADHERENCE, LIKENESS)

    def check(self, row: UserLLMRow) -> None:
        if row.source == "commonsense_qa":
            if len({normalized(choice) for choice in row.choices}) < 2:
                raise ValueError(f"choices: {list(row.choices)} are fewer than two different options")
            if not all(normalized(choice) for choice in row.choices):
                raise ValueError(f"choices: {list(row.choices)} include an option without a letter or digit")
        if row.source != "prism" and not row.conversation:
            raise ValueError(f"conversation_history: is empty, but a row of {row.source} answers an assistant turn")

    def groups(self, row: UserLLMRow) -> Mapping[str, str]:
        if row.source != "prism":
            return {"source": row.source}
        return {"source": row.source, "turn of prism": "later" if row.conversation else "first"}

    def group_keys(self, row: UserLLMRow) -> Sequence[GroupKey]:
        if row.source != "prism":
            return [GroupKey.from_text("question", row.question or row.intent)]
        opening = row.conversation_history.partition("\n")[0]
        keys = {"conversation": row.group or opening or row.intent, "user": row.user_id}
        return [GroupKey.from_text(kind, value) for kind, value in keys.items() if value]

    def prompt(self, row: UserLLMRow, feedback: str | None = None) -> list[Message]:
        place = f"The conversation so far:\n{row.conversation}\n\n{NEXT}" if row.conversation else FIRST
        asked = PROMPT.fill(wish=row.intent, place=place)
        return [{"role": "user", "content": with_feedback(asked, feedback)}]

    async def play(self, row: UserLLMRow, players: Players, feedback: str | None) -> Episode:
        messages = self.prompt(row, feedback)
        answer = await players.policy().say(messages, base=self.prompt(row))
        return Episode({"policy": [*messages, {"role": "assistant", "content": answer}]})

    async def judge(self, row: UserLLMRow, episode: Episode, judge: Judge) -> Verdict:
        verdict = await self._judge_turn(row, spoken(episode.answer), judge)
        answered = float(not garbled_end(episode.answer))
        return replace(verdict, metrics={**verdict.metrics, "answered": answered})

    async def _judge_turn(self, row: UserLLMRow, turn: Turn, judge: Judge) -> Verdict:
        if row.source == "prism" and turn.only_ends:
            # There are no words to judge. The critique is the same on a last turn, which it would reveal otherwise.
            reward = float(row.is_last_turn)
            return Verdict(reward, _termination(row, True, reward), ENDED_WITHOUT_A_WORD)
        require_content([turn.text], 1)
        if (critique := _no_message(row, turn, self.prompt(row)[0]["content"])) is not None:
            worst = {_SCORES[row.source]: 0.0} if row.source in _SCORES else _termination(row, turn.ends, 0.0)
            return Verdict(0.0, {HEADLINE.name: 0.0, **worst}, critique)
        if row.source == "commonsense_qa":
            return _role_adherence(row, turn)
        if row.source == "natural_questions":
            data = {"question": row.question or row.intent, "conversation": row.conversation, "user_turn": turn.text}
            answer = await judge.ask(IntentAdherence, ADHERENCE, data)
            refused = float(answer.outcome == "refused")
            return Verdict(refused, {HEADLINE.name: refused, "intent_adherence": refused}, answer.critique)
        data = {"intent": row.intent, "conversation": row.conversation, "user_turn": turn.text}
        return _open_conversation(row, turn, await judge.ask(HumanLikeness, LIKENESS, data))

    def missing_form(self, row: UserLLMRow, episode: Episode) -> str | None:
        if not garbled_end(episode.answer):
            return None
        return f"Nothing but {END} ends the conversation; what you wrote instead counted as part of your message."

    def set_metrics(self, rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
        return userllm_set_metrics(rows, outcomes)


def _no_message(row: UserLLMRow, turn: Turn, prompt: str) -> str | None:
    """The reason why a turn is not a message of this person, whatever it mentions; None if it may be one."""
    if echoes(turn.text, prompt, row.own_words):
        return "You repeated your instructions or the assistant's words. Write the next message of this person instead."
    if loops(turn.text):
        return "You said the same over and over. Write one short message."
    return None


def _role_adherence(row: UserLLMRow, turn: Turn) -> Verdict:
    mentioned, options = choices_mentioned(row.choices, turn.text)
    adheres = float(mentioned == options or mentioned not in (1, 2))
    critique = (
        "You stayed with your question and left the answer to the assistant. Keep doing that, in your own words."
        if adheres
        else "You named some of the options, as someone who answers does. You are the one who asks: ask again, say "
        "what you do not understand or repeat the whole question, and do not lean towards any option."
    )
    return Verdict(adheres, {HEADLINE.name: adheres, "role_adherence": adheres}, critique)


def _open_conversation(row: UserLLMRow, turn: Turn, likeness: HumanLikeness) -> Verdict:
    overlap = intent_overlap(row.intent, turn.text)
    reward = statistics.fmean((1 - overlap, turn.ends == row.is_last_turn, likeness.human_likeness))
    metrics = {
        **_termination(row, turn.ends, reward),
        "intent_overlap": overlap,
        "human_likeness": likeness.human_likeness,
    }
    return Verdict(reward, metrics, _critique(row, overlap, likeness))


def _termination(row: UserLLMRow, ends: bool, reward: float) -> dict[str, float]:
    return {HEADLINE.name: reward, "prism": reward, "termination_correct": float(ends == row.is_last_turn)}


def _critique(row: UserLLMRow, overlap: float, likeness: HumanLikeness) -> str:
    """The critique, by judge and by rule. It must not depend on the gold answer: whether this turn is the last."""
    parts = [likeness.critique.strip()] if likeness.critique.strip() else []
    if overlap > 0:
        parts.append(
            f"{overlap:.0%} of the words in your message, without the small ones, come from the description of what "
            "you want. Say it in your own words."
        )
    else:
        parts.append("You repeated no word from the description of what you want. Keep doing that.")
    if row.conversation:
        parts.append("Think again about whether this person would stop here or go on, and act accordingly.")
    return " ".join(parts)
