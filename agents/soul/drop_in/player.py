"""The user's next turn, for a request that another tool sends to an OpenAI-compatible endpoint.

Nothing is kept between requests: the messages are the user's memory, as the tool sends them. A turn with a fault is
asked for again, with the reason in the prompt. What still leaks, speaks as the assistant or says nothing is replaced by
a neutral turn; a stop that comes too early loses its token. A user that has ended stays so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from soul.drop_in.faults import DATA, RULES, STOP, Transcript, faults_of, said
from soul.judge import Endpoint
from soul.judge.call.http import BadStatus, Connection
from soul.judge.call.untrusted import neutral
from soul.policy import TURN_TOKENS
from soul.tasks.mirrorbench import OPENING

NEVER_SENT = {"reveals_plan", "speaks_as_assistant", "says_nothing"}
_PERSON = {"user": "assistant", "assistant": "user"}  # the tool asks for the person as for an assistant
_FIELD = re.compile(r"single key `(\w+)`")  # as DeepEval asks for it


class Asked(NamedTuple):
    """The turn that a tool asks for. Without a system message, the first prompt is the instructions."""

    so_far: Transcript
    stop: str  # the token that ends the conversation; "" if the tool knows none
    field: str  # of the JSON object that the turn is to be in; "": plain text
    other: bool  # the tool asks for something else, such as whether its goal was reached

    @classmethod
    def read(cls, body: Mapping[str, Any], stop: str) -> Asked:
        """Read the body of a request; `stop`: for a prompt that names no token."""
        messages = [(message["role"], text_of(message)) for message in body["messages"]]
        told, last = "\n".join(text for role, text in messages if role == "system"), messages[-1][1]
        schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema") or {}
        names = list(schema.get("properties") or _FIELD.findall(last)[-1:])
        as_json = "response_format" in body or (not told and "JSON" in last)
        field = names[0] if as_json and len(names) == 1 else ""
        spoken = messages if told else messages[1:]
        turns = [(_PERSON.get(role, role), text) for role, text in spoken if role != "system" and text]
        told = told or messages[0][1]
        so_far = Transcript("", tuple({"role": role, "content": text} for role, text in turns), told)
        return cls(so_far, next(iter(STOP.findall(told)), stop), field, as_json and not field)

    def with_turn(self, text: str) -> Transcript:
        """The conversation with one more turn of the person."""
        return replace(self.so_far, messages=(*self.so_far.messages, {"role": "user", "content": text}))


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, which may come in parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


@dataclass
class Player:
    """Plays the user with the model of an endpoint."""

    endpoint: Endpoint
    connection: Connection
    stop: str = ""  # for tools whose prompt names no token
    tries: int = 3  # answers of the model for one turn, at most

    async def answer(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], Transcript | None]:
        """The completion for a request (or BadStatus), and the conversation; None if the tool asked something else."""
        asked, refused, broken = Asked.read(body, self.stop), list[str](), list[str]()
        if asked.other:
            return await self._ask(body, body["messages"]), None
        message: dict[str, Any] = {"role": "assistant", "content": asked.stop}
        completion: dict[str, Any] = {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}
        ended = any(STOP.search(each["content"]) for each in asked.so_far.messages if each["role"] == "user")
        for _ in range(0 if ended else self.tries):
            completion = await self._ask(body, _prompt(body["messages"], asked, refused))
            message = completion["choices"][0]["message"]
            broken, ended = _check(message, asked, body.get("tools") or ())
            if not broken:
                break
            refused += broken
        if NEVER_SENT & set(broken):
            message["content"] = DATA["neutral"][len(asked.so_far.messages) // 2 % len(DATA["neutral"])]
            message.pop("tool_calls", None)
            completion["choices"][0]["finish_reason"] = "stop"
        elif "stops_too_early" in broken:
            message["content"] = said(message["content"]) or DATA["neutral"][0]
        ended, text = ended and not {"stops_too_early", *NEVER_SENT} & set(broken), message["content"] or ""
        if asked.field:
            message["content"] = json.dumps({asked.field: text}, ensure_ascii=False)
        return {**completion, "soul": {"ended": ended, "refused": refused}}, asked.with_turn(text)

    async def _ask(self, body: Mapping[str, Any], messages: Sequence[Any]) -> dict[str, Any]:
        most = {} if {"max_tokens", "max_completion_tokens"} & body.keys() else {"max_completion_tokens": TURN_TOKENS}
        sent = {**body, **most, "model": self.endpoint.model, "messages": list(messages), "stream": False}
        sent.pop("stream_options", None)
        async with asyncio.timeout(self.endpoint.timeout_s):
            response = await self.connection.post(sent)
        if response.status >= 300:
            raise BadStatus(response)
        return dict(json.loads(response.body))


def _check(message: dict[str, Any], asked: Asked, tools: Sequence[Any]) -> tuple[list[str], bool]:
    """The rules that a turn breaks, and whether it ends the conversation. Its message becomes what the tool sees."""
    if calls := [call["function"] for call in message.get("tool_calls") or ()]:
        message["content"] = None  # a turn is either said or done
        names = [tool["function"]["name"] for tool in tools]
        fit = all(call["name"] in names and _object(call["arguments"]) is not None for call in calls)
        return [] if fit else ["says_nothing"], False
    text = text_of(message)
    if asked.field and (found := _object(text)):  # a small model may write the turn alone
        text = str(found.get(asked.field, ""))
    whole, stops = asked.with_turn(text), STOP.findall(text)
    broken = list(dict.fromkeys(fault.rule for fault in faults_of(whole, len(whole.messages) - 1)))
    ended = bool(stops) or "stops_too_late" in broken  # the second goodbye ends it
    end = ([stop for stop in stops if stop in asked.so_far.instructions] or [asked.stop])[-1] if ended else ""
    alone = end and f"exactly {end}" in asked.so_far.instructions  # verifiers looks for nothing but the token
    message["content"] = end if alone else f"{said(text)} {end}".strip()
    return [rule for rule in broken if rule != "stops_too_late"], ended


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object in a text; None if there is none."""
    try:
        return dict(json.loads(text[text.find("{") : text.rfind("}") + 1]))
    except ValueError:
        return None


def _prompt(messages: Sequence[Mapping[str, Any]], asked: Asked, refused: Sequence[str]) -> list[dict[str, Any]]:
    """The messages for the model, with our rules, and with the other side's control tokens broken up."""
    turns = [
        {**message, "content": neutral(text_of(message))} if message["role"] in ("user", "tool") else dict(message)
        for message in messages
        if message["role"] != "system"
    ]
    notes = "".join(f"\nAn earlier answer of yours was refused: it {RULES[rule]}." for rule in refused)
    if len(turns) == len(messages):  # everything is in one prompt
        return [*turns[:-1], {**turns[-1], "content": text_of(turns[-1]) + notes}]
    rules = DATA["play"].format(end=f"write {asked.stop}" if asked.stop else "say goodbye")
    system = {"role": "system", "content": f"{asked.so_far.instructions}\n\n{rules}{notes}"}
    return [system, *(turns or [{"role": "user", "content": OPENING}])]
