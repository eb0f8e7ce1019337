"""The columns beside conversations: those that are read, and those that mean something that this run cannot do.

A column that nothing here knows is a note of its writer (an id, a score) and is left alone. A known one that changes
what should be trained, and is not supported, is an error: without it, the model would learn something else in silence.
"""

from collections.abc import Collection

from sft.formats.reading import Record
from soul.errors import SoulError

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
