"""Send a run to an OpenTelemetry collector: spans with their real times, read from the files of the run.

Their tree is step > phase > session > stage of an episode > call of a model (docs/traces_out.md). Each step is a trace
of its own, and so is each session of an evaluation, because viewers cut or refuse large traces. Each links to the span
of the run. Ids are hashes, so a span that is sent again keeps its id. Names and attributes follow the semantic
conventions for GenAI where they have one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

from soul.adapters import not_installed
from soul.errors import SoulError
from soul.pages.facts import TrainingFiles
from soul.record import SessionRecord, digest

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
except ImportError as error:
    raise not_installed("soul export --to otlp", "opentelemetry-sdk", "otel") from error

RUN = ("run",)  # the path of the run's own span
# timing_s/<phase> of a step, in order; "rest" is what none of them measures
_PHASES = ("gen", "old_log_prob", "ref", "adv", "update_actor", "rest", "save_checkpoint", "update_weights", "testing")
_Records = Sequence[SessionRecord]


class NotSent(SoulError):
    """The collector did not take the spans, or there are none."""


class Span(NamedTuple):
    """A span before it is sent. Its parent has the same path without the last part."""

    path: tuple[str, ...]
    start: float  # unix time
    seconds: float
    attributes: Mapping[str, Any] = {}  # those that are None are not sent
    name: str = ""  # if it is not the last part of the path
    problem: str | None = None  # why it failed


def run_spans(files: TrainingFiles, sessions: Iterable[tuple[str, int, _Records]], policy: str) -> Iterator[Span]:
    """The spans of a run, its own last; `sessions` are those of `soul.export.sessions_of`."""
    begin, end = math.inf, 0.0
    for step, splits in groupby(sessions, key=lambda each: each[1]):
        records = {split: found for split, _, found in splits}
        of_evaluation = (span for one in records.get("", ()) for span in _session(one, policy, ()))
        for span in of_evaluation if "" in records else _step(step, files.metrics.get(step, {}), records, policy):
            begin, end = min(begin, span.start), max(end, span.start + span.seconds)
            yield span
    if not end:
        raise NotSent(f"{files.folder} has no finished step, or no session with times: there is nothing to send.")
    yield Span(RUN, begin, end - begin, {"gen_ai.request.model": policy, "soul.objective": files.run.get("objective")})


def _step(step: int, numbers: Mapping[str, float], records: Mapping[str, _Records], policy: str) -> Iterator[Span]:
    """The spans of a step; none before its metrics are written, or if nothing tells when it began."""
    played = [one.span[0] for one in records.get("step") or records.get("val", ()) if one.span]
    begin = numbers.get("training/started", min(played, default=None))  # older runs: their first session
    if not numbers or begin is None:
        return
    took = {name.removeprefix("timing_s/"): value for name, value in numbers.items() if name.startswith("timing_s/")}
    took["rest"] = max(0.0, took.get("step", 0.0) - sum(took.get(phase, 0.0) for phase in _PHASES[:-1]))
    shown = {f"soul.{key}": value for key, value in numbers.items() if key.startswith("ditto/") and key.count("/") == 1}
    yield Span((f"step {step}",), begin, took.get("step", 0.0) + took.get("testing", 0.0), {"soul.step": step, **shown})
    for phase in filter(took.get, _PHASES):
        yield Span((f"step {step}", phase), begin, took[phase])
        begin += took[phase]
        for one in records.get({"gen": "step", "testing": "val"}.get(phase, ""), ()):
            yield from _session(one, policy, (f"step {step}", phase))


def _session(record: SessionRecord, policy: str, above: tuple[str, ...]) -> Iterator[Span]:
    """The spans of a session; none if it has no times."""
    if record.span is None:
        return
    path, (began, ended), operation = (*above, record.name), record.span, {"gen_ai.operation.name": "invoke_agent"}
    model = {"gen_ai.request.model": policy, "gen_ai.provider.name": "vllm" if record.session else "openai"}
    about = {"gen_ai.agent.name": record.task, "gen_ai.conversation.id": record.name}
    yield Span(path, began, ended - began, operation | model | about, f"invoke_agent {record.task}")
    for kind, attempt in zip(("draft", "refined"), record.attempts, strict=False):
        causes: dict[str, str] = {one.stage: one.cause for one in (attempt.failure, record.feedback_failure) if one}
        for stage, start in attempt.started.items():
            of_stage, seconds = (*path, f"{kind} {stage}"), attempt.seconds.get(stage, 0.0)
            score = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": attempt.reward}
            yield Span(of_stage, start, seconds, score if stage == "judge" else {}, problem=causes.get(stage))
            for seat in dict.fromkeys(one.seat for one in record.sequences) if stage == "play" else ():
                for number, (began, took, tokens) in enumerate(record.turns(kind, seat)):
                    yield _call((*of_stage, f"{seat} {number}"), began, took, model, tokens)
            for number, call in enumerate(one for one in attempt.calls if (one.role or "judge") == stage):
                times = (call.started, call.seconds) if call.started else (start, seconds)  # older runs
                judge = {"gen_ai.request.model": call.model, "gen_ai.provider.name": "openai"}
                yield _call((*of_stage, str(number)), *times, judge, vars(call))


def _call(path: tuple[str, ...], start: float, took: float, model: dict[str, Any], about: Mapping[str, Any]) -> Span:
    """The call of a model; `about` has its numbers of tokens, and why it failed."""
    used = {"gen_ai.usage.input_tokens": about.get("prompt_tokens"), "soul.cached": about.get("cached")}
    used |= {"gen_ai.usage.output_tokens": about.get("completion_tokens"), "gen_ai.operation.name": "chat"}
    return Span(path, start, took, model | used, f"chat {model['gen_ai.request.model']}", about.get("failure") or None)


def send(run: str, spans: Iterator[Span], endpoint: str | None) -> str:
    """Send spans, and tell how many. Raises NotSent."""
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
    resource, count = Resource.create({"service.name": "soul", "soul.run": run}), 0

    def context(path: tuple[str, ...]) -> trace.SpanContext:
        root, own = (int(digest([run, *part]), 16) for part in (path[:1], path))
        return trace.SpanContext(root, own >> 64, is_remote=False)

    def encoded(span: Span) -> ReadableSpan:
        parent, start, known = span.path[:-1], round(span.start * 1e9), {**span.attributes, "error.type": span.problem}
        about = {key: value for key, value in known.items() if value is not None}
        more: dict[str, Any] = {"start_time": start, "end_time": start + max(0, round(span.seconds * 1e9))}
        more["links"] = [] if parent or span.path == RUN else [trace.Link(context(RUN))]
        more["kind"] = trace.SpanKind.CLIENT if span.name.startswith("chat ") else trace.SpanKind.INTERNAL
        more["status"] = trace.Status(trace.StatusCode.ERROR, span.problem) if span.problem else trace.Status()
        above = context(parent) if parent else None
        return ReadableSpan(span.name or span.path[-1], context(span.path), above, resource, about, **more)

    while batch := list(islice(spans, 500)):  # a request each
        if exporter.export([encoded(span) for span in batch]).name != "SUCCESS":
            raise NotSent(
                f"the collector took only {count:,} spans; the lines above say why. --endpoint is its address."
            )
        count += len(batch)
    return f"Sent {count:,} spans."
