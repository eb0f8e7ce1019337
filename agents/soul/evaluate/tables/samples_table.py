"""samples.parquet: one typed row per sample of a run, with everything that is known about it, for pandas and the like.

`model`, `set`, `number` and `sample` identify a row, even across runs. Columns whose content depends on the task are
maps (`metrics`, `groups`) or JSON (`record`, `jury`), so that every run has the same columns. The file's metadata holds
the settings of the run. Parquet's text is valid UTF-8, so a lone surrogate becomes U+FFFD; the journal keeps it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
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
_SAMPLE_FIELDS = ("set", "task", "number", "row", "sample", "stamp", "prompts", "shortened")  # columns of the same name
_DRAFT_FIELDS = ("valid", "reward", "critique", "ended", "contentless")
_TOTALS = ("calls", "prompt_tokens", "completion_tokens")

SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("set", pa.string()),
        ("task", pa.string()),
        ("number", pa.int64()),  # the row's position in the set's file
        ("row", pa.int64()),  # the record's own index
        ("sample", pa.int64()),
        ("valid", pa.bool_()),
        ("failure_stage", pa.string()),
        ("cause", pa.string()),
        ("failure_detail", pa.string()),
        ("metric", pa.string()),  # the headline's name, of which `reward` is a value
        ("reward", pa.float64()),
        ("metrics", pa.map_(pa.string(), pa.float64())),
        ("critique", pa.string()),
        ("target", pa.string()),  # the right answer, if the task has a single one
        ("given", pa.string()),  # the answer that was read; null if none could be
        ("jury", pa.string()),  # JSON
        ("ended", pa.string()),
        ("contentless", pa.bool_()),
        ("groups", pa.map_(pa.string(), pa.string())),
        ("messages", _MESSAGES),  # seat by seat; null if the play failed
        ("episode", pa.string()),  # JSON: the other fields of the task's episode (Sotopia's acts, CoSER's lines)
        ("usage", pa.list_(_USAGE)),
        *((f"policy_{name}", pa.int64()) for name in _TOTALS),
        ("policy_cost_usd", pa.float64()),  # null if a request's price is unknown, or if another run played
        *((f"judges_{name}", pa.int64()) for name in _TOTALS),
        ("judges_cost_usd", pa.float64()),
        ("seconds_play", pa.float64()),
        ("seconds_judge", pa.float64()),
        ("started_play", pa.float64()),  # unix time
        ("started_judge", pa.float64()),
        ("prompts", pa.list_(pa.string())),
        ("stamp", pa.string()),
        ("record", pa.string()),  # JSON
        ("shortened", pa.list_(pa.string())),  # fields of the record that were truncated to fit the model's context
    ]
)


def write_parquet(run: EvaluationRun, path: Path) -> None:
    """Write the samples of a run atomically, ordered by set, row and sample."""
    schema = SCHEMA.with_metadata({"model": _valid(run.name), "settings": json.dumps(run.settings)})
    with whole_file(path) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for start in range(0, len(run.samples), BATCH):
            samples = run.samples[start : start + BATCH]
            rows = [_row(run.name, *pair) for pair in zip(samples, answers_of(samples), strict=True)]
            try:
                batch = pa.RecordBatch.from_pylist(rows, schema)
            except UnicodeEncodeError:  # a lone surrogate somewhere
                batch = pa.RecordBatch.from_pylist(_storable(rows), schema)
            writer.write_batch(batch)


def _row(model: str, sample: SessionRecord, answers: Answers) -> dict[str, Any]:
    """One sample under the columns."""
    draft, failure, usage = sample.draft, sample.draft.failure, sample.usage
    policy = [count for role, count in usage.items() if role == "policy"]
    judges = [count for role, count in usage.items() if role != "policy"]
    return {
        "model": model,
        **{name: getattr(sample, name) for name in _SAMPLE_FIELDS},
        **{name: getattr(draft, name) for name in _DRAFT_FIELDS},
        "failure_stage": failure and failure.stage,
        "cause": failure and failure.cause,
        "failure_detail": failure and failure.detail,
        "metric": tasks.load(sample.task).headline.name,
        "metrics": None if draft.metrics is None else list(draft.metrics.items()),
        "jury": json.dumps([opinion.model_dump() for opinion in draft.jury], ensure_ascii=False),
        "target": answers.target,
        "given": answers.given,
        "groups": list(sample.groups.items()),
        "messages": _messages(draft.seats),
        "episode": json.dumps(draft.episode, ensure_ascii=False),
        "usage": [_counts(role, count) for role, count in usage.items()],
        **_totals("policy", policy if "policy" in usage else None),
        **_totals("judges", judges),
        "seconds_play": draft.seconds.get("play"),
        "seconds_judge": draft.seconds.get("judge"),
        "started_play": draft.started.get("play"),
        "started_judge": draft.started.get("judge"),
        "record": json.dumps(sample.record, ensure_ascii=False),
    }


def _storable(value: Any) -> Any:
    """The value with valid text only."""
    if isinstance(value, str):
        return _valid(value)
    if isinstance(value, dict):
        return {_valid(name): _storable(item) for name, item in value.items()}
    return type(value)(map(_storable, value)) if isinstance(value, list | tuple) else value


def _valid(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


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


def _totals(who: str, counts: Sequence[Usage] | None) -> dict[str, Any]:
    """The sums that readers want first; null if a cost is not fully known, or if nothing was counted."""
    if counts is None:  # the episode was played by another run, and judged again
        return {f"{who}_{name}": None for name in (*_TOTALS, "cost_usd")}
    usage = total(counts)
    sums: dict[str, Any] = {f"{who}_{name}": getattr(usage, name) for name in _TOTALS}
    return {**sums, f"{who}_cost_usd": None if usage.unpriced else usage.cost_usd}
