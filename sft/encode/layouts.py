"""The columns of corpora: the layouts in which turns come, and columns that mean something that this run cannot do.

messages, extra_info.messages    a list of role and content
conversations                    ShareGPT: a list of from and value (or of role and content)
prompt, response                 the prompt is a text or a list of messages; only the response is trained
prompt, completion               the same in TRL's words; the completion may be a list of one message
instruction, input, output       Alpaca: only the output is trained; perhaps a `history` of pairs
text                             a whole document, all of which is trained (sft/encode/documents.py)

A column `system` or `system_prompt` beside any of them but `text` is the system message of its row. A column that
nothing here knows is a note of its writer (an id, a score) and is left alone. A known one that changes what should be
trained, and is not supported, is an error: without it, the model would learn something else in silence.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from sft.encode.messages import BadConversation, Turn, parsed, read_turns, text_field
from sft.formats.reading import BadShard, Record
from soul.errors import SoulError

Layout = Literal[
    "messages", "extra_info.messages", "conversations", "prompt_response", "prompt_completion", "alpaca", "text"
]
RESPONSES: tuple[Layout, ...] = ("prompt_response", "prompt_completion", "alpaca")  # only the last turn is trained

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


READ = ("data_source", "train_role", "tools", "extra_info.tools")  # if a file has them
WITHOUT = "To train without it, write the file anew without the column (docs/sft_data.md#other-files)."

_TEXT_ONLY = "this training run supports text only"
_PAIRS = "pairs of a good and a bad answer are not supported; to train the good one, write it into messages"
_RATED = "rated answers (KTO) are not supported; to train the good ones, keep their rows and leave out this column"
_MASKS = "ready-made token ids and masks are not read; mark messages with weight: 0 or train: false"
_ONE_TEMPLATE = "the template's arguments are the same for all rows: data.apply_chat_template_kwargs"
_IN_TOOLS = "write the functions into a column `tools`"
UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys("image images video videos audio audios multi_modal_data multi_modal_inputs".split(), _TEXT_ONLY),
    **dict.fromkeys("chosen rejected".split(), _PAIRS),
    "label": _RATED,
    **dict.fromkeys("input_ids labels loss_mask assistant_masks completion_mask".split(), _MASKS),
    **dict.fromkeys("enable_thinking chat_template_kwargs chat_template".split(), _ONE_TEMPLATE),
    "functions": _IN_TOOLS,
    "function_call": _IN_TOOLS,
    "documents": "the template's argument `documents` is not passed on; write the documents into a message",
    **dict.fromkeys(
        "weight sample_weight".split(),
        "weights of rows are not supported; set the passes per epoch with path:ratio, or weight: 0 in a message",
    ),
}


class UnsupportedColumn(SoulError):
    """A column means something that this training run cannot do; the message names file and column."""


def check_columns(path: str, columns: Collection[str]) -> None:
    """Check that no column of a file means something that is not supported."""
    for name in columns:
        reason = UNSUPPORTED.get(name)
        # `label` alone is a note (the class of a text); beside a completion it rates the answer.
        if name == "label" and not {"completion", "response"} & set(columns):
            continue
        if reason:
            raise UnsupportedColumn(f"{path}: column {name!r}: {reason}. {WITHOUT}")


def check_row(record: Record, where: str) -> None:
    """As `check_columns` for one row of a JSON file, whose columns are known by its first rows only."""
    if not UNSUPPORTED.keys().isdisjoint(record):
        check_columns(where, record.keys())


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


def turns_of(record: Mapping[str, Any], layout: Layout, where: str) -> list[Turn]:
    """The turns of a row of any layout but `text`, with its system message; of RESPONSES, the last is the response."""
    if layout == "conversations":
        turns = read_turns(_from_sharegpt(record, where), f"{where}, field messages")
    elif layout in RESPONSES:
        turns = _prompt(_from_alpaca(record, where) if layout == "alpaca" else record.get("prompt"), where)
    else:
        holder = record if layout == "messages" else record.get("extra_info") or {}
        turns = read_turns(holder.get("messages"), f"{where}, field messages")
    if system := _system(record, where):
        turns = _with_system(turns, system, where)
    return [*turns, _response(record, layout, where)] if layout in RESPONSES else turns


def _system(record: Mapping[str, Any], where: str) -> str:
    """The text of the row's column for a system message; "" if it has none."""
    texts = {text for name in SYSTEM if (text := text_field(record, name, where))}
    if len(texts) > 1:
        raise BadConversation(f"{where}: the fields {' and '.join(SYSTEM)} differ. Leave one column out.")
    return "".join(texts)


def _with_system(turns: list[Turn], system: str, where: str) -> list[Turn]:
    """The turns after the system message, unless they begin with the same one."""
    if turns[0]["role"] not in ("system", "developer"):
        return [{"role": "system", "content": system}, *turns]
    if turns[0]["content"] != system:
        raise BadConversation(
            f"{where}: the turns begin with a system message, and the row's column says another one. Remove one of "
            f"them, or leave the column out ({' or '.join(SYSTEM)})."
        )
    return turns


def _prompt(prompt: Any, where: str) -> list[Turn]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    turns = read_turns(prompt, f"{where}, field prompt")
    if any(turn.pop("train", False) for turn in turns):
        raise BadConversation(
            f"{where}, field prompt: a turn is marked to be trained (weight or train), but only the response is."
        )
    return turns


def _response(record: Mapping[str, Any], layout: Layout, where: str) -> Turn:
    response = record.get("output" if layout == "alpaca" else "response")
    if layout == "prompt_completion":
        response = _completion(record.get("completion"), where)
    if not isinstance(response, str):
        raise BadConversation(f"{where}, field response: expected text, got {type(response).__name__}. Fix the row.")
    return {"role": "assistant", "content": response}


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
