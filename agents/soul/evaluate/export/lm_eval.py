"""Write a run's results in the file format of lm-evaluation-harness, for tools that read it.

`results_<date>.json`, and `samples_<set>_<date>.jsonl` for each set, have the keys of the harness, version 0.4.x. A set
becomes a task, a row a document, and a row's samples its repeats. Values are in the metric's own range.
`<metric>_stderr` is the standard error of the mean over rows (standard deviation over the square root of their number),
as in the harness. No value includes rows without a verdict: `effective` in `n-samples` leaves them out, the metrics
`invalid`, `worst_case` and `best_case` show their share and effect, and `soul` has the causes. `target` is the right
answer, or a person's answer if no single answer is right (targets.py); `given` is the answer read from each sample.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from soul import tasks
from soul.evaluate.export.options import ExportOptions
from soul.evaluate.export.targets import expected_and_given
from soul.evaluate.numbers.bootstrap import RESAMPLES
from soul.evaluate.numbers.results import Results
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.run.run_folder import EvaluationRun
from soul.message import Message
from soul.record import SessionRecord, opening

GROUP = "soul"
NOT_KNOWN = "N/A"  # the harness's entry for a missing standard error
# Keys of the harness for which a run of SOUL has no value.
_EMPTY = (
    *("git_hash", "system_instruction", "system_instruction_sha"),
    *("fewshot_as_multiturn", "chat_template", "chat_template_sha"),
)
_SAMPLING = ("temperature", "top_p", "max_output_tokens", "reasoning_effort")


def write(run: EvaluationRun, results: Results, options: ExportOptions) -> str:
    """Write the files, and return the results file. Their date is that of the last sample, so repeating overwrites."""
    date = run.ended.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    folder = (options.out or run.folder / "lm-eval") / _sanitized(run.name)
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {}
    for name, result in results.sets.items():
        documents = list(_documents(run, name, result))
        text = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
        path = folder / f"samples_{re.sub(r'[^0-9A-Za-z_-]', '_', name)}_{date}.jsonl"
        path.write_bytes(text.encode("utf-8", "backslashreplace"))
        hashes[name] = _hash("".join(d["doc_hash"] + d["prompt_hash"] + d["target_hash"] for d in documents))
    content = {**results_json(run, results), "date": run.ended.timestamp(), "task_hashes": hashes}
    path = folder / f"results_{date}.json"
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    return str(path)


def results_json(run: EvaluationRun, results: Results) -> dict[str, Any]:
    """The content of the results file, without the date and the hashes of the samples."""
    sets = results.sets
    policy = run.settings["policy"]
    sampling = {key: policy[key] for key in _SAMPLING if policy.get(key) is not None}
    versions = {name: _version(result) for name, result in sets.items()}
    return {
        "results": {name: _metrics(result) for name, result in sets.items()},
        "groups": {GROUP: _group(results)},
        "group_subtasks": {GROUP: list(sets), **{name: [] for name in sets}},
        "configs": {name: _config(result, run.n, sampling) for name, result in sets.items()},
        "versions": {GROUP: None, **versions},
        "n-shot": {name: 0 for name in sets},
        "higher_is_better": {name: _directions(result) for name, result in sets.items()},
        "n-samples": {
            name: {
                "original": math.ceil(run.wanted[name] / run.n),
                "effective": sum(bool(row.rewards) for row in result.per_row),
            }
            for name, result in sets.items()
        },
        "config": {
            "model": "soul",
            "model_args": {"model": run.name, "base_url": policy.get("base_url")},
            "batch_sizes": [],
            **dict.fromkeys(("batch_size", "device", "use_cache")),
            "limit": run.limit,
            "bootstrap_iters": RESAMPLES,
            "gen_kwargs": sampling,
            "random_seed": run.seed,
        },
        "model_source": "soul",
        "model_name": run.name,
        "model_name_sanitized": _sanitized(run.name),
        **dict.fromkeys(_EMPTY),
        "soul": {"settings": dict(run.settings), "sets": {name: _failures(result) for name, result in sets.items()}},
    }


def standard_error(result: SetResult) -> float | None:
    """Standard error of the score over rows; None with fewer than two rows that have a valid sample."""
    if result.joint is not None:
        return None if result.resampled is None else float(result.resampled.std(ddof=1))
    means = [row.mean for row in result.per_row if row.mean is not None]
    return statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None


def _metrics(result: SetResult) -> dict[str, Any]:
    metrics: dict[str, Any] = {"name": result.name, "alias": result.name, "sample_len": result.rows}
    if result.mean is not None:
        error = standard_error(result)
        metrics[f"{result.headline.name},none"] = result.mean
        metrics[f"{result.headline.name}_stderr,none"] = NOT_KNOWN if error is None else error
    if result.samples:
        metrics["invalid,none"] = result.invalid / result.samples
    if result.bounds is not None and result.invalid:
        metrics["worst_case,none"], metrics["best_case,none"] = result.bounds
    return metrics | {f"{name},none": value for name, value in result.metrics.items()}


def _group(results: Results) -> dict[str, Any]:
    """The macro average: the unweighted mean of the sets' means."""
    macro = results.macro
    group: dict[str, Any] = {"name": GROUP, "alias": f"{GROUP}, {macro.sets} of {macro.of} sets"}
    if macro.mean is not None:
        errors = [standard_error(result) for result in results.sets.values() if result.mean is not None]
        known = [error for error in errors if error is not None]
        whole = math.sqrt(sum(error**2 for error in known)) / len(errors) if len(known) == len(errors) else NOT_KNOWN
        group["macro_average,none"], group["macro_average_stderr,none"] = macro.mean, whole
    return group


def _config(result: SetResult, n: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
    metric = result.headline
    listed = {"metric": metric.name, "aggregation": "set" if result.joint else "mean"}
    return {
        "task": result.name,
        "tag": [GROUP],
        "output_type": "generate_until",
        "num_fewshot": 0,
        "repeats": n,
        "generation_kwargs": dict(sampling),
        "metric_list": [{**listed, "higher_is_better": metric.higher_is_better}],
        "metadata": {"version": _version(result), "soul_task": result.task, "range": [metric.low, metric.high]},
    }


def _directions(result: SetResult) -> dict[str, bool | None]:
    metric = result.headline
    return {
        metric.name: metric.higher_is_better,
        "invalid": False,
        **dict.fromkeys(("worst_case", "best_case"), metric.higher_is_better),
        **dict.fromkeys(result.metrics, None),  # tasks define no direction for their other metrics
    }


def _version(result: SetResult) -> str | None:
    """The versions of the judge prompts: results of a task are comparable only if these are equal."""
    if result.task not in tasks.names():
        return None
    return ", ".join(prompt.id.rpartition("/")[2] for prompt in tasks.load(result.task).prompts) or None


def _failures(result: SetResult) -> dict[str, Any]:
    names = ("samples", "invalid", "causes", "contentless", "interval", "bounds")
    return {name: getattr(result, name) for name in names}


def _documents(run: EvaluationRun, name: str, result: SetResult) -> Iterable[dict[str, Any]]:
    """One line per row: its record, prompt, target, replies, the answers that were read, and the mean reward."""
    means = {row.number: row.mean for row in result.per_row}
    for number, of_row in groupby(run.by_set[name], key=lambda sample: sample.number):
        samples = list(of_row)
        prompt = json.dumps(_prompt(samples[0]), ensure_ascii=False)
        target, given = expected_and_given(samples)
        replies = [_reply(sample) for sample in samples]
        record = samples[0].record
        yield {
            "doc_id": number,
            "doc": record,
            "target": target,
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}},
            "resps": [replies],
            "filtered_resps": replies,
            "filter": "none",
            "metrics": [result.reward.name],
            "doc_hash": _hash(json.dumps(record, indent=2, ensure_ascii=False)),
            "prompt_hash": _hash(prompt),
            "target_hash": _hash(target),
            result.reward.name: means[number],
            "given": given,
            "valid": [sample.draft.valid for sample in samples],
            "rewards": [sample.draft.reward for sample in samples],
            "failures": [sample.draft.failure and sample.draft.failure.cause for sample in samples],
        }


def _prompt(sample: SessionRecord) -> list[Message]:
    """The messages that the first seat saw before its first turn; empty if the play failed."""
    return opening(next(iter((sample.draft.seats or {}).values()), []))


def _reply(sample: SessionRecord) -> str:
    """The only turn of the policy; for a longer conversation, all messages after the prompt by seat, as JSON."""
    seats = sample.draft.seats or {}
    turns = [m["content"] for messages in seats.values() for m in messages if m["role"] == "assistant"]
    if len(turns) <= 1:
        return "".join(turns)
    first = len(_prompt(sample))
    shown = {name: list(messages)[first if place == 0 else 0 :] for place, (name, messages) in enumerate(seats.items())}
    return json.dumps(shown, ensure_ascii=False)


def _sanitized(model: str) -> str:
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
