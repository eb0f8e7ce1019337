"""samples.parquet: every sample of a run with all that is known of it, one row each, typed, for pandas and the like.

`model`, `set`, `number` and `sample` name a row, also where the files of several runs are put together. What differs
from task to task is a map (`metrics`, `groups`) or JSON (`record`, `jury`), so that every run has the same columns. A
failed sample has no reward: null, with its cause. The settings of the run stand in the file's metadata.

Parquet's text is valid UTF-8, which half a surrogate pair cannot be: it becomes U+FFFD in the text columns. The
sample's journal line as ASCII JSON is then in `original`, so that nothing is lost; in all other rows that is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from soul import tasks
from soul.evaluate.numbers.set_result import total
from soul.evaluate.report.answers import Answers, answers_of
from soul.evaluate.run.run_folder import EvaluationRun
from soul.files.whole_file import whole_file
from soul.judge.call.usage import Usage
from soul.record import Conversations, SessionRecord

FILE = "samples.parquet"
BATCH = 500  # samples in memory as a table: a few MB, tens for long dialogues
_HALF = re.compile("[\ud800-\udfff]")
_COUNTS = (
    "calls",
    "requests",
    "retries",
    "reasks",
    "cache_hits",
    "cut_off",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "unpriced",
)
_USAGE = pa.struct(
    [
        ("role", pa.string()),
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in ("cost_usd", "seconds", "queued_s")),
        ("failures", pa.map_(pa.string(), pa.int64())),
    ]
)
_MESSAGES = pa.list_(pa.struct([("seat", pa.string()), ("role", pa.string()), ("content", pa.string())]))
_OF_SAMPLE = ("set", "task", "number", "row", "sample", "stamp", "prompts", "shortened")  # columns under the same name
_OF_DRAFT = ("valid", "reward", "critique", "ended", "contentless")
_TOTALS = ("calls", "prompt_tokens", "completion_tokens")

SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("set", pa.string()),
        ("task", pa.string()),
        ("number", pa.int64()),  # the row's position in the set's file
        ("row", pa.int64()),  # the index that the record itself carries
        ("sample", pa.int64()),
        ("valid", pa.bool_()),
        ("failure_stage", pa.string()),
        ("cause", pa.string()),
        ("failure_detail", pa.string()),
        ("metric", pa.string()),  # the headline's name: what `reward` is
        ("reward", pa.float64()),
        ("metrics", pa.map_(pa.string(), pa.float64())),
        ("critique", pa.string()),
        ("target", pa.string()),  # the right answer, where the task has a single one
        ("given", pa.string()),  # the answer that was read; null where none could be
        ("jury", pa.string()),  # JSON
        ("ended", pa.string()),
        ("contentless", pa.bool_()),
        ("groups", pa.map_(pa.string(), pa.string())),
        ("messages", _MESSAGES),  # seat by seat; null where the play failed
        ("episode", pa.string()),  # JSON: what the task's episode holds beside them (Sotopia's acts, CoSER's lines)
        ("usage", pa.list_(_USAGE)),
        *((f"policy_{name}", pa.int64()) for name in _TOTALS),
        ("policy_cost_usd", pa.float64()),  # null where a request's price is not known, or another run played
        *((f"judges_{name}", pa.int64()) for name in _TOTALS),
        ("judges_cost_usd", pa.float64()),
        ("seconds_play", pa.float64()),
        ("seconds_judge", pa.float64()),
        ("prompts", pa.list_(pa.string())),
        ("stamp", pa.string()),
        ("record", pa.string()),  # JSON
        ("shortened", pa.list_(pa.string())),  # fields of the record that were cut to fit the model's context
        ("original", pa.string()),  # the journal's line, where the columns cannot hold its text
    ]
)


def write_parquet(run: EvaluationRun, path: Path) -> None:
    """Write the samples of a run, in the order of sets, rows and samples.

    The file is there as a whole, or as it was before.
    """
    schema = SCHEMA.with_metadata({"model": _valid(run.name), "settings": json.dumps(run.settings)})
    with whole_file(path) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for start in range(0, len(run.samples), BATCH):
            samples = run.samples[start : start + BATCH]
            try:
                batch = _batch([_row(run.name, *of) for of in zip(samples, answers_of(samples), strict=True)], schema)
            except UnicodeEncodeError:  # half of a surrogate pair somewhere
                stored = [_storable(sample) for sample in samples]
                answers = answers_of(sample for sample, _ in stored)
                rows = zip(stored, answers, strict=True)
                batch = _batch([_row(run.name, sample, of, original) for (sample, original), of in rows], schema)
            writer.write_batch(batch)


def _batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names]
    return pa.record_batch(columns, schema=schema)


def _row(model: str, sample: SessionRecord, answers: Answers, original: str | None = None) -> dict[str, Any]:
    """One sample under the columns."""
    draft, failure, usage = sample.draft, sample.draft.failure, sample.usage
    policy = [count for role, count in usage.items() if role == "policy"]
    judges = [count for role, count in usage.items() if role != "policy"]
    return {
        "model": _valid(model),
        **{name: getattr(sample, name) for name in _OF_SAMPLE},
        **{name: getattr(draft, name) for name in _OF_DRAFT},
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
        "record": json.dumps(sample.record, ensure_ascii=False),
        "original": original,
    }


def _storable(sample: SessionRecord) -> tuple[SessionRecord, str | None]:
    """The sample with valid text alone; and its line as ASCII JSON where that changed it."""
    whole = sample.to_line()
    if whole.isascii() or _HALF.search(whole) is None:
        return sample, None
    return SessionRecord.from_line(_valid(whole), FILE), sample.to_line(ascii_only=True)


def _valid(text: str) -> str:
    return _HALF.sub("\ufffd", text)


def _messages(seats: Conversations | None) -> list[dict[str, str]] | None:
    if seats is None:
        return None
    return [
        {"seat": seat, "role": message["role"], "content": message["content"]}
        for seat, messages in seats.items()
        for message in messages
    ]


def _counts(role: str, usage: Usage) -> dict[str, Any]:
    found = {name: getattr(usage, name) for name in (*_COUNTS, "cost_usd", "seconds", "queued_s")}
    return {"role": role, **found, "failures": list(usage.failures.items())}


def _totals(of: str, counts: Sequence[Usage] | None) -> dict[str, Any]:
    """The sums that people ask for first. A cost that is not known in full is no number, nor is what nobody counted."""
    if counts is None:  # an episode that was played by another run, and judged again
        return {f"{of}_{name}": None for name in (*_TOTALS, "cost_usd")}
    usage = total(counts)
    found: dict[str, Any] = {f"{of}_{name}": getattr(usage, name) for name in _TOTALS}
    return {**found, f"{of}_cost_usd": None if usage.unpriced else usage.cost_usd}
