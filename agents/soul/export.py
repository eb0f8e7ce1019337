"""Export the sessions of a training run or an evaluation to other tools.

    soul export outputs/ditto-1 --to atif --out trajectories    # JSON files in Harbor's trajectory format
    soul export outputs/ditto-1 --to otlp                       # spans to an OpenTelemetry collector on this machine

The run may still be going on: its finished steps, or samples, are exported.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import soul
from soul.cli.arguments import existing_folder, non_negative_int, output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.evaluate.run.run_folder import EvaluationRun
from soul.files.trace_files import FOLDER, trace_files
from soul.pages.facts import TrainingFiles, facts, kind_of
from soul.record import SessionRecord, read_records

_NOT_AGAIN: Any = {"draft": True, "refined": True, "sequences": {"__all__": {"prompt_ids", "response"}}}


def sessions_of(place: Path, steps: range | None) -> Iterator[tuple[str, int, Sequence[SessionRecord]]]:
    """The sessions of each step ("step") and validation ("val") with its number; those of an evaluation as ("", 0)."""
    if kind_of(place) == "evaluation":
        yield "", 0, EvaluationRun.load(place).samples
    files = [file for file in trace_files(place / FOLDER) if not file.live and (steps is None or file.step in steps)]
    for (split, step), parts in groupby(files, key=lambda file: (file.split, file.step)):
        yield split, step, [line.record for part in parts for line in read_records(part.path)]


def trajectories(record: SessionRecord, run: str, policy: str) -> Iterator[dict[str, Any]]:
    """The trajectories of a session: one for each episode and seat of the policy; none if the play failed."""
    session = record.model_dump(mode="json", exclude=_NOT_AGAIN)
    for kind, attempt in zip(("draft", "refined"), record.attempts, strict=False):
        for number, (seat, messages) in enumerate((attempt.seats or {}).items(), start=1):
            turns, steps = record.turns(kind, seat), list[dict[str, Any]]()
            for message in messages:
                source = "agent" if message["role"] == "assistant" else message["role"]
                steps.append({"step_id": len(steps) + 1, "source": source, "message": message["content"]})
                if source == "agent" and (turn := next(turns, None)):
                    steps[-1]["timestamp"] = datetime.fromtimestamp(turn[0], UTC).isoformat()
                    steps[-1]["metrics"] = {**turn[2], "extra": {"seconds": turn[1]}}
            ids = {"session_id": record.name, "trajectory_id": f"{record.name}.{kind}.{number}"}
            agent = {"name": "soul", "version": soul.__version__, "model_name": policy, "extra": {"seat": seat}}
            notes = (
                "Draft; a refined answer has the same session_id."
                if kind == "draft"
                else f"After the feedback on {record.name}.draft.{number}."
            )
            verdict = attempt.model_dump(include={"reward", "metrics"})
            told = {"run": run, "session": session, "attempt": attempt.model_dump(mode="json", exclude={"seats"})}
            head = {"schema_version": "ATIF-v1.7", **ids, "agent": agent, "notes": notes, "steps": steps}
            yield {**head, "final_metrics": {"total_steps": len(steps), "extra": verdict}, "extra": told}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Export a run."""
    parser = Parser(prog="soul export", description=__doc__)
    parser.add_argument("run", metavar="RUN", type=existing_folder, help="the folder of one run")
    parser.add_argument("--to", required=True, choices=("atif", "otlp"), help="the format")
    parser.add_argument("--steps", metavar="N", nargs=2, type=non_negative_int, help="the first and the last one [all]")
    parser.add_argument("--out", metavar="DIR", type=output_folder, help="atif: where the files go [RUN/atif]")
    parser.add_argument("--endpoint", metavar="URL", help="otlp: the collector's address [http://localhost:4318]")
    options = parser.parse_args(arguments)
    place, about, foreign = options.run, facts(options.run), "endpoint" if options.to == "atif" else "out"
    if getattr(options, foreign) is not None or (options.steps and about.kind == "evaluation"):
        parser.error("use --out with --to atif, --endpoint with --to otlp, and --steps with a training run")
    run, files = place.resolve().name, TrainingFiles.read(place)
    model = (files.run.get("config") or {}).get("actor_rollout_ref", {}).get("model", {}).get("path", "policy")
    policy = about.name if about.kind == "evaluation" else str(model)
    sessions = sessions_of(place, range(options.steps[0], options.steps[1] + 1) if options.steps else None)
    if options.to == "otlp":
        from soul.spans import run_spans, send  # here: it needs OpenTelemetry

        return print(send(run, run_spans(files, sessions, policy), options.endpoint))
    out, written = options.out or place / "atif", 0
    for split, step, records in sessions:
        folder = out / (f"{split}_{step:06d}" if split else "")
        folder.mkdir(parents=True, exist_ok=True)
        for one in (each for record in records for each in trajectories(record, run, policy)):
            # UTF-8 cannot encode half of a surrogate pair.
            text = json.dumps(one, ensure_ascii=False).encode(errors="replace")
            (folder / f"{one['trajectory_id']}.json").write_bytes(text)
            written += 1
    print(f"Wrote {written:,} trajectories to {out}.")
