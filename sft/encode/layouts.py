"""The layouts in which corpora come, and their rows in the two forms that `conversation.py` reads.

messages, extra_info.messages    a list of role and content
conversations                    ShareGPT: a list of from and value (or of role and content)
prompt, response                 the prompt is a text or a list of messages; only the response is trained
prompt, completion               the same in TRL's words; the completion may be a list of one message
instruction, input, output       Alpaca: only the output is trained; perhaps a `history` of pairs
text                             a whole document, all of which is trained (sft/encode/documents.py)

A column `system` or `system_prompt` beside any of them but `text` is the system message of its row.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sft.encode import conversation
from sft.encode.messages import BadConversation, parsed, read_turns, text_field
from sft.formats.reading import BadShard

Layout = Literal[
    "messages", "extra_info.messages", "conversations", "prompt_response", "prompt_completion", "alpaca", "text"
]

SYSTEM = ("system", "system_prompt")
# Layout -> the columns that it must have, and those that it may have. A file has the first layout that fits.
_COLUMNS: dict[Layout, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "messages": (("messages",), SYSTEM),
    "extra_info.messages": (("extra_info.messages",), SYSTEM),
    "conversations": (("conversations",), SYSTEM),
    "prompt_response": (("prompt", "response"), SYSTEM),
    "prompt_completion": (("prompt", "completion"), SYSTEM),
    "alpaca": (("instruction", "output"), ("input", "history", *SYSTEM)),
    "text": (("text",), ()),
}
EXPECTED = (
    "messages (a list of role and content), extra_info.messages, conversations (ShareGPT), prompt and response, prompt "
    "and completion, instruction and output (Alpaca), or text (documents)"
)
# ShareGPT's names for the speakers -> roles.
_SPEAKERS = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model", "function_call"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
}


def find_layout(columns: Sequence[str], file: str) -> Layout:
    """The layout of a file with these columns."""
    for layout, (needed, _) in _COLUMNS.items():
        if set(needed) <= set(columns):
            return layout
    partner = {"prompt": "response", "response": "prompt", "completion": "prompt", "instruction": "output"}
    missing = next((partner[name] for name in columns if name in partner), "messages")
    raise BadShard(
        f"{file}: the column {missing!r} is missing (it has: {', '.join(columns) or 'none'}). A file for SFT has "
        f"{EXPECTED}."
    )


def layout_columns(layout: Layout, columns: Sequence[str]) -> list[str]:
    """The columns of a layout that a file has."""
    needed, optional = _COLUMNS[layout]
    return [*needed, *(name for name in optional if name in columns)]


def standard_row(
    record: Mapping[str, Any], layout: Layout, where: str
) -> tuple[Mapping[str, Any], conversation.Layout]:
    """A row of any layout but `text` in a form that `read_conversation` reads."""
    assert layout != "text"
    form: conversation.Layout = "prompt_response"
    if layout == "conversations":
        record, form = {**record, "messages": _from_sharegpt(record, where)}, "messages"
    elif layout == "extra_info.messages":
        holder = record.get("extra_info") or {}
        tools = record.get("tools") or holder.get("tools")
        record, form = {**record, "messages": holder.get("messages"), "tools": tools}, "messages"
    elif layout == "prompt_completion":
        record = {**record, "response": _completion(record.get("completion"), where)}
    elif layout == "alpaca":
        record = {**record, "prompt": _from_alpaca(record, where), "response": record.get("output")}
    else:
        form = layout
    system = _system(record, where)
    return (_with_system(record, form, system, where) if system else record), form


def _system(record: Mapping[str, Any], where: str) -> str:
    """The text of the row's column for a system message; "" if it has none."""
    texts = {text for name in SYSTEM if (text := text_field(record, name, where))}
    if len(texts) > 1:
        raise BadConversation(f"{where}: the fields {' and '.join(SYSTEM)} differ. Leave one column out.")
    return "".join(texts)


def _with_system(record: Mapping[str, Any], form: conversation.Layout, system: str, where: str) -> Mapping[str, Any]:
    """The row with its system message in front of its turns, unless they begin with the same one."""
    field = "prompt" if form == "prompt_response" else "messages"
    value = record.get(field)
    if form == "prompt_response" and isinstance(value, str):
        value = [{"role": "user", "content": value}]
    turns = read_turns(value, f"{where}, field {field}")
    if turns[0]["role"] not in ("system", "developer"):
        turns = [{"role": "system", "content": system}, *turns]
    elif turns[0]["content"] != system:
        raise BadConversation(
            f"{where}: the turns begin with a system message, and the row's column says another one. Remove one of "
            f"them, or leave the column out ({' or '.join(SYSTEM)})."
        )
    return {**record, field: turns}


def _from_sharegpt(record: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    value = parsed(record.get("conversations"), f"{where}, field conversations", "turns")
    if not isinstance(value, list):
        raise BadConversation(
            f"{where}, field conversations: expected a list of turns with from and value, got {type(value).__name__}."
        )
    return [_turn(turn, f"{where}, field conversations, turn {number}") for number, turn in enumerate(value)]


def _turn(turn: Any, where: str) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise BadConversation(f"{where}: expected from and value, got {type(turn).__name__}.")
    speaker = turn.get("from")
    if speaker is None:  # role and content already
        return turn
    role = _SPEAKERS.get(str(speaker).lower())
    if role is None:
        raise BadConversation(f"{where}: the speaker {speaker!r} is not one of {', '.join(_SPEAKERS)}. Fix the row.")
    rest = {name: value for name, value in turn.items() if name not in ("from", "value") and value is not None}
    if str(speaker).lower() == "function_call":
        return {**rest, "role": role, "content": "", "tool_calls": _tool_calls(turn.get("value"), where)}
    return {**rest, "role": role, "content": turn.get("value")}


def _tool_calls(value: Any, where: str) -> list[dict[str, Any]]:
    """The calls of a `function_call` turn: JSON with name and arguments, or a list of them."""
    try:
        calls = json.loads(value)
        calls = calls if isinstance(calls, list) else [calls]
        return [{"type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls]
    except (TypeError, ValueError, KeyError) as error:
        raise BadConversation(
            f"{where}: a function_call holds JSON with name and arguments, not {str(value)[:60]!r}. Fix the row."
        ) from error


def _completion(value: Any, where: str) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) != 1 or not isinstance(value[0], dict) or value[0].get("role") != "assistant":
        raise BadConversation(
            f"{where}, field completion: a list of messages must be one message of the assistant. Put longer "
            "conversations into the column messages."
        )
    return value[0].get("content")


def _from_alpaca(record: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    texts = [text_field(record, name, where) for name in ("instruction", "input")]
    turns = []
    for number, pair in enumerate(record.get("history") or []):
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadConversation(f"{where}, field history, pair {number}: expected a question and an answer.")
        turns += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    question = "\n\n".join(text for text in texts if text.strip())
    return [*turns, {"role": "user", "content": question}]
