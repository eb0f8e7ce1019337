"""A run for other tools: what its trajectories and spans say is what its files say."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ditto.run.run_folder import RunFolder
from soul.export import main
from soul.record import SequenceSummary, read_records
from tests.soul.evaluate.finished_run import real_run
from tests.soul.pages.hostile_samples import HOSTILE
from tests.soul.pages.invented_run import STARTED, add_hostile, sessions_of, training

TIMES = [(STARTED + 60.25, 0.5), (STARTED + 61.0, 0.75)]
SAMPLED = {"prompt_ids": [1, 2], "response": [(3, -0.5), (4, -1.0), (5, None), (6, -0.25)], "turn_times": TIMES}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training run of two steps. The first session has tokens and a call's times; another has hostile texts."""
    folder = training(tmp_path_factory.mktemp("runs") / "mine", steps=2)
    sessions = sessions_of(1)
    first = sessions[0]
    first.sequences = [SequenceSummary.model_validate({**one.model_dump(), **SAMPLED}) for one in first.sequences]
    (call,) = first.draft.calls
    call.prompt_tokens, call.completion_tokens, call.started, call.seconds = 40, 7, STARTED + 62.5, 0.25
    RunFolder(folder).write_traces("step", 1, sessions)
    add_hostile(folder, 1)
    numbers = {"timing_s/gen": 30.0, "timing_s/update_weights": 1.5, "timing_s/step": 45.0, "timing_s/testing": 9.0}
    RunFolder(folder).log_metrics(1, {**numbers, "training/started": STARTED + 59.0})
    RunFolder(folder).log_metrics(2, numbers)
    return folder


def test_every_episode_and_seat_is_a_trajectory_with_the_texts_verdict_and_tokens_of_the_trace(run, tmp_path):
    assert main([str(run), "--to", "atif", "--steps", "1", "1", "--out", str(tmp_path)]) == 0
    found = {file.name: json.loads(file.read_bytes()) for file in (tmp_path / "step_000001").iterdir()}
    files = sorted((run / "traces").glob("step_000001*"))
    records = [line.record for file in files for line in read_records(file)]
    assert len(records) == 49 and HOSTILE in [record.feedback for record in records]
    first = found[f"{sessions_of(1)[0].name}.refined.1.json"]
    for record in records:
        for kind, attempt in zip(("draft", "refined"), record.attempts, strict=False):
            for number, messages in enumerate(attempt.seats.values(), start=1):
                one = found.pop(f"{record.name}.{kind}.{number}.json")
                texts = [message["content"].encode(errors="replace").decode() for message in messages]
                assert [step["message"] for step in one["steps"]] == texts
                assert one["final_metrics"]["extra"]["reward"] == attempt.reward == one["extra"]["attempt"]["reward"]
                assert (f"{record.name}.draft.{number}." in one["notes"]) == (kind == "refined")
    assert not found
    (turn,) = (step for step in first["steps"] if step["source"] == "agent")
    assert turn["timestamp"] == "2023-11-14T22:14:20.250000+00:00"
    ids = {"prompt_token_ids": [1, 2], "completion_token_ids": [3, 4], "logprobs": [-0.5, -1.0]}
    assert turn["metrics"] == {**ids, "prompt_tokens": 2, "completion_tokens": 2, "extra": {"seconds": 0.5}}


@contextmanager
def collector(status=200):
    """A collector's address; the spans that it got, by path of their names; path and key of each request."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra otel")
    spans, paths, requests = {}, {}, set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.add((self.path, self.headers["x-key"]))
            request = service.ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            for one in (span for of in request.resource_spans for scope in of.scope_spans for span in scope.spans):
                assert spans.setdefault(one.span_id, one) is one
            self.send_response(status)
            self.end_headers()

    def path(span):
        return f"{path(spans[span.parent_span_id])} > {span.name}" if span.parent_span_id else span.name

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", paths, requests
    server.shutdown()
    for span in sorted(spans.values(), key=lambda span: span.start_time_unix_nano):
        paths.setdefault(path(span), []).append(span)


def times(span):
    begin = span.start_time_unix_nano / 1e9
    return round(begin - STARTED, 3), round(span.end_time_unix_nano / 1e9 - begin, 3)


def attributes(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_a_training_run_is_spans_with_real_times_and_parents(run, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret-of-the-test")
    with collector() as (url, spans, requests):
        assert main([str(run), "--to", "otlp", "--endpoint", url]) == 0
    assert requests == {("/v1/traces", "secret-of-the-test")}
    (root,), (step,), hitom = spans["run"], spans["step 1"], "step 1 > gen > invoke_agent hitom"
    assert step.links[0].span_id == root.span_id and step.trace_id != root.trace_id
    assert times(step) == (59.0, 54.0) and times(spans["step 1 > gen"][0]) == (59.0, 30.0)
    assert times(spans["step 1 > update_weights"][0]) == (102.5, 1.5)
    assert times(spans["step 2"][0])[0] == 120.0  # an older run's step begins with its first session
    assert len(spans[hitom]) == 17 and len(spans["step 2 > testing > invoke_agent sotopia"]) == 8
    assert [times(turn) for turn in spans[f"{hitom} > draft play > chat policy"]] == [(60.25, 0.5), (61.0, 0.75)]
    _, older, call, *_ = spans[f"{hitom} > draft judge > chat m"]
    assert times(call) == (62.5, 0.25) and times(older) == (62.0, 1.0)  # those of its stage
    assert {"gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 7}.items() <= attributes(call).items()
    failed, judged, *_ = spans[f"{hitom} > draft judge"]
    assert attributes(judged)["gen_ai.evaluation.score.value"] == sessions_of(1)[0].draft.reward
    assert attributes(failed)["error.type"] == "refusal" and failed.status.code == 2


def test_a_sample_of_an_evaluation_is_a_trace_with_its_judges_calls(tmp_path):
    evaluation = real_run(tmp_path, sets=("sotopia",), rows=4)
    with collector() as (url, spans, _):
        assert main([str(evaluation.folder), "--to", "otlp", "--endpoint", url]) == 0
    assert len({span.trace_id for span in spans["invoke_agent sotopia"]}) == len(evaluation.samples) == 4
    calls = sorted((each for one in evaluation.samples for each in one.draft.calls), key=lambda each: each.started)
    sent = spans[f"invoke_agent sotopia > draft judge > chat {calls[0].model}"]
    wanted = [(call.started - STARTED, call.seconds) for call in calls]
    assert [times(span) for span in sent] == [pytest.approx(each, abs=2e-3) for each in wanted] and wanted[0][0] > 0


def test_a_collector_that_refuses_and_a_folder_without_a_run_are_named(run, tmp_path, capsys):
    assert main([str(tmp_path), "--to", "atif"]) == 2 and "has no training run" in capsys.readouterr().err
    with collector(status=400) as (url, _, _):
        assert main([str(run), "--to", "otlp", "--endpoint", url]) == 2
    assert "took only 0 spans" in capsys.readouterr().err
