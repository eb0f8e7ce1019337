"""samples.parquet: one typed row per sample of a run, with everything that is known about it, for pandas and the like.

`model`, `set`, `number` and `sample` identify a row, even across runs. Columns whose content depends on the task are
maps (`metrics`, `groups`) or JSON (`record`, `jury`), so that every run has the same columns. The file's metadata holds
the settings of the run. Parquet's text is valid UTF-8, so a lone surrogate becomes U+FFFD; the journal keeps it.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from soul import tasks
from soul.evaluate.run.run_folder import EvaluationRun
from soul.files.whole_file import whole_file
from soul.judge.call.usage import Usage, total
from soul.record import Conversations, SessionRecord
from soul.shown_answers import Answers, answers_of

FILE = "samples.parquet"
BATCH = 500  # samples in memory at once: a few MB, tens of MB for long dialogues
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# The counters of `Usage` by their type. Failures by cause have a field of their own, latency buckets have none.
_COUNTS = [field.name for field in fields(Usage) if field.type == "int"]
_AMOUNTS = [field.name for field in fields(Usage) if field.type == "float"]
_USAGE = pa.struct(
    [
        ("role", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in _AMOUNTS),
        ("failures", pa.map_(pa.string(), pa.int64())),
    ]
)
_MESSAGES = pa.list_(pa.struct([("seat", pa.string()), ("role", pa.string()), ("content", pa.string())]))
_TEXT, _TEXTS, _COUNT, _NUMBER = pa.string(), pa.list_(pa.string()), pa.int64(), pa.float64()
_Value = Callable[[SessionRecord, Answers], Any]


def _total(who: str, counter: str) -> _Value:
    """A sum that readers want first, of the policy or of all others; null if it is not known."""

    def value(sample: SessionRecord, _: Answers) -> Any:
        counts = [count for role, count in sample.usage.items() if (role == "policy") is (who == "policy")]
        if who == "policy" and not counts:  # the episode was played by another run, and judged again
            return None
        usage = total(counts)
        return None if counter == "cost_usd" and usage.unpriced else getattr(usage, counter)

    return value


# Column -> its type, and its value for a sample.
_COLUMNS: dict[str, tuple[pa.DataType, _Value]] = {
    "set": (_TEXT, lambda sample, _: sample.set),
    "task": (_TEXT, lambda sample, _: sample.task),
    "number": (_COUNT, lambda sample, _: sample.number),  # the row's position in the set's file
    "row": (_COUNT, lambda sample, _: sample.row),  # the record's own index
    "sample": (_COUNT, lambda sample, _: sample.sample),
    "valid": (pa.bool_(), lambda sample, _: sample.draft.valid),
    "failure_stage": (_TEXT, lambda sample, _: sample.draft.failure and sample.draft.failure.stage),
    "cause": (_TEXT, lambda sample, _: sample.draft.failure and sample.draft.failure.cause),
    "failure_detail": (_TEXT, lambda sample, _: sample.draft.failure and sample.draft.failure.detail),
    # The headline's name, of which `reward` is a value.
    "metric": (_TEXT, lambda sample, _: tasks.load(sample.task).headline.name),
    "reward": (_NUMBER, lambda sample, _: sample.draft.reward),
    "metrics": (pa.map_(_TEXT, _NUMBER), lambda sample, _: _pairs(sample.draft.metrics)),
    "critique": (_TEXT, lambda sample, _: sample.draft.critique),
    "target": (_TEXT, lambda _, answers: answers.target),  # the right answer, if the task has a single one
    "given": (_TEXT, lambda _, answers: answers.given),  # the answer that was read; null if none could be
    "jury": (_TEXT, lambda sample, _: _json([opinion.model_dump() for opinion in sample.draft.jury])),
    "ended": (_TEXT, lambda sample, _: sample.draft.ended),
    "contentless": (pa.bool_(), lambda sample, _: sample.draft.contentless),
    "groups": (pa.map_(_TEXT, _TEXT), lambda sample, _: _pairs(sample.groups)),
    "messages": (_MESSAGES, lambda sample, _: _messages(sample.draft.seats)),  # seat by seat; null if the play failed
    # The other fields of the task's episode (Sotopia's acts, CoSER's lines).
    "episode": (_TEXT, lambda sample, _: _json(sample.draft.episode)),
    "usage": (pa.list_(_USAGE), lambda sample, _: [_counts(role, count) for role, count in sample.usage.items()]),
    **{
        f"{who}_{counter}": (_NUMBER if counter == "cost_usd" else _COUNT, _total(who, counter))
        for who in ("policy", "judges")
        for counter in ("calls", "prompt_tokens", "completion_tokens", "cost_usd")
    },
    "seconds_play": (_NUMBER, lambda sample, _: sample.draft.seconds.get("play")),
    "seconds_judge": (_NUMBER, lambda sample, _: sample.draft.seconds.get("judge")),
    "started_play": (_NUMBER, lambda sample, _: sample.draft.started.get("play")),  # unix time
    "started_judge": (_NUMBER, lambda sample, _: sample.draft.started.get("judge")),
    "prompts": (_TEXTS, lambda sample, _: sample.prompts),
    "stamp": (_TEXT, lambda sample, _: sample.stamp),
    "record": (_TEXT, lambda sample, _: _json(sample.record)),
    "shortened": (_TEXTS, lambda sample, _: sample.shortened),  # fields that were truncated to fit the model's context
}
SCHEMA = pa.schema([("model", _TEXT), *((name, kind) for name, (kind, _) in _COLUMNS.items())])


def write_parquet(run: EvaluationRun, path: Path) -> None:
    """Write the samples of a run atomically, ordered by set, row and sample."""
    schema = SCHEMA.with_metadata({"model": _valid(run.name), "settings": json.dumps(run.settings)})
    with whole_file(path) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for start in range(0, len(run.samples), BATCH):
            samples = run.samples[start : start + BATCH]
            rows = [
                {"model": run.name, **{name: value(*pair) for name, (_, value) in _COLUMNS.items()}}
                for pair in zip(samples, answers_of(samples), strict=True)
            ]
            try:
                batch = pa.RecordBatch.from_pylist(rows, schema)
            except UnicodeEncodeError:  # a lone surrogate somewhere
                batch = pa.RecordBatch.from_pylist(_storable(rows), schema)
            writer.write_batch(batch)


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _valid(value)
    if isinstance(value, dict):
        return {_valid(name): _storable(item) for name, item in value.items()}
    return type(value)(map(_storable, value)) if isinstance(value, list | tuple) else value


def _valid(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


def _pairs(values: Mapping[str, Any] | None) -> list[tuple[str, Any]] | None:
    return None if values is None else list(values.items())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _messages(seats: Conversations | None) -> list[dict[str, str]] | None:
    if seats is None:
        return None
    return [
        {"seat": seat, "role": message["role"], "content": message["content"]}
        for seat, messages in seats.items()
        for message in messages
    ]


def _counts(role: str, usage: Usage) -> dict[str, Any]:
    counts = {name: getattr(usage, name) for name in (*_COUNTS, *_AMOUNTS)}
    return {"role": role, **counts, "failures": list(usage.failures.items())}
