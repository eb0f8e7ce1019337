"""A record of a shard as a conversation: messages in the model's own roles, and which of them are trained.

A rule for the source (train_roles.py) names the trained side, and for long conversations how many of the last turns
stay turns. Of a prompt with a response, only the response is trained. A message with `weight: 0` or `train: false` is
context only. `tools` beside the messages go to the chat template.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sft.encode.layouts import RESPONSES, Layout, turns_of
from sft.encode.messages import BadConversation, Turn, read_tools
from sft.encode.train_roles import ROLES, RoleRules, SourceRule, source_of

SWAPPED = {"user": "assistant", "assistant": "user"}


@dataclass(frozen=True)
class Conversation:
    """One row.

    Attributes:
        source: its data_source.
        messages: the turns for the chat template, with the trained side as the assistant.
        trained: numbers of the trained turns, ascending.
        role: the side of the trained turns, or "response".
        origin: what says so; "" for a response.
        tools: the tools that the model may call; None: none.
    """

    source: str
    messages: list[Turn]
    trained: tuple[int, ...]
    role: str
    origin: str = ""
    tools: list[dict[str, Any]] | None = None

    @property
    def trains(self) -> str:
        """The trained side and what says so, for the plan."""
        return f"{self.role} ({self.origin})" if self.origin else self.role


def read_conversation(record: Mapping[str, Any], layout: Layout, rules: RoleRules, file: str, row: int) -> Conversation:
    """The conversation of a row of a shard; `file` and `row` are for errors."""
    where = f"{file}, row {row}"
    source = source_of(record.get("data_source"))
    tools = record.get("tools")
    if layout == "extra_info.messages":
        tools = tools or (record.get("extra_info") or {}).get("tools")
    tools = read_tools(tools, where)
    if layout in RESPONSES:
        turns = turns_of(record, layout, where)
        conversation = Conversation(source, turns, (len(turns) - 1,), "response", tools=tools)
    else:
        rule = _rule(record, source, rules, file, row)
        messages, trained = _sides(turns_of(record, layout, where), rule, where)
        conversation = Conversation(source, messages, trained, rule.role, rule.origin, tools)
    _check_trained(conversation, where)
    return conversation


def _rule(record: Mapping[str, Any], source: str, rules: RoleRules, file: str, row: int) -> SourceRule:
    role = record.get("train_role")
    if not role:
        return rules.rule(source, file)
    if role not in ROLES:
        raise BadConversation(f"{file}, row {row}, field train_role: {role!r} is not one of {', '.join(ROLES)}.")
    return SourceRule(role, "train_role column")


def _sides(turns: list[Turn], rule: SourceRule, where: str) -> tuple[list[Turn], tuple[int, ...]]:
    """The turns with the trained side as the assistant, and the numbers of those that are trained."""
    side = "user" if rule.role == "human" else "assistant"
    for number, turn in enumerate(turns):
        if turn.get("train") and turn["role"] != side:
            raise BadConversation(
                f"{where}, turn {number}: the turn is marked to be trained (weight or train), but it is the "
                f"{turn['role']}'s, and the source trains the {rule.role}'s turns ({rule.origin}). Remove the mark, or "
                "set a train_role column."
            )
    turns = _fold_earlier_turns(turns, rule.last_turns, side)
    if rule.empty_system and turns[0]["role"] != "system":
        turns = [{"role": "system", "content": ""}, *turns]
    if side == "user":
        turns = [turn | {"role": SWAPPED.get(turn["role"], turn["role"])} for turn in turns]
    trained = (n for n, turn in enumerate(turns) if turn["role"] == "assistant" and turn.get("train", True))
    numbers = tuple(trained)
    return [{key: value for key, value in turn.items() if key != "train"} for turn in turns], numbers


def _check_trained(conversation: Conversation, where: str) -> None:
    for number in conversation.trained:
        turn, role = conversation.messages[number], conversation.role
        if not turn["content"].strip() and not turn.get("tool_calls"):
            side = "the human's side, which is trained here" if role == "human" else role
            raise BadConversation(
                f"{where}, turn {number} ({side}): the turn is empty: there is nothing to train. Fix or drop the row, "
                "or set data.bad_rows=drop."
            )


def _fold_earlier_turns(turns: list[Turn], last: int, side: str) -> list[Turn]:
    """Keep only the `last` turns as turns (0: all). The earlier ones become one text of context before them.

    The text has the form that OSim-8B was trained with: it names the roles of the file, and is at the beginning of the
    first turn that is kept, or in a turn of its own if that one is trained.
    """
    head = [turn for turn in turns if turn["role"] in ("system", "developer")]
    rest = [turn for turn in turns if turn["role"] not in ("system", "developer")]
    if not last or len(rest) <= last:
        return turns
    earlier, kept = rest[:-last], rest[-last:]
    text = "\n\n".join(["[Earlier conversation]\n" + _line(earlier[0]), *(_line(turn) for turn in earlier[1:])])
    other = SWAPPED[side]
    if kept[0]["role"] == other:
        return [*head, kept[0] | {"content": f"{text}\n\n{kept[0]['content']}"}, *kept[1:]]
    return [*head, {"role": other, "content": text}, *kept]


def _line(turn: Turn) -> str:
    return f"{turn['role']}: {turn['content']}"
