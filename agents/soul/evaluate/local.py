"""Evaluate checkpoints: `python -m soul.evaluate.local [SETS...] [section.key=value ...] [-- arguments of vLLM]`.

    ACTOR_MODEL_PATH=outputs/ditto-rl-hitom/global_step_50 python -m soul.evaluate.local hitom --limit 100
    python -m soul.evaluate.local --model Qwen/Qwen3-8B --model outputs/run/global_step_50/lora_adapter --tp 2

Each checkpoint (hub id, Hugging Face folder, global_step_N or run folder, LoRA adapter) gets vLLM's OpenAI server for
as long as it is asked, and then everything is as with a model behind an API. Several checkpoints end in one table.
"""

from __future__ import annotations

if __name__ == "__main__":
    from soul.evaluate.run.ctrl_c import end_silently

    end_silently()

import argparse
import json
import os
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from soul.cli.arguments import one_of, positive_int
from soul.cli.error_border import reports_errors
from soul.errors import BadSettings
from soul.evaluate.numbers.results import Results
from soul.evaluate.run import runner as command
from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.evaluate.run.vllm_server import ServerSettings, free_port, serving
from soul.evaluate.tables import side_by_side
from soul.judge.cli_overrides import sections_of
from soul.judge.roles import policy_endpoint
from soul.rows.truncation import truncate_row
from soul.task import Row, Task

DEFAULT_MODEL = "sunweiwei/Ditto-8B"  # the released model
PROMPT_TOKENS = 8192  # as in training
# One server has all devices to itself, and a turn may wait for hundreds of others.
PATIENT = {"concurrency": 256, "timeout_s": 3600.0, "deadline_s": 7200.0, "api_key_env": "none"}
FREE = {"price_in": 0.0, "price_out": 0.0}


def settings_of(given: argparse.Namespace, checkpoint: Checkpoint, server: ServerSettings) -> EvaluationSettings:
    """The settings of the evaluation of one checkpoint; the server's address is chosen here.

    Raises:
        BadSettings: a section, a set or a setting is unknown.
    """
    names, words = command.split(given.words)
    sections = sections_of(words, ["tasks"])
    own = sections.pop("policy", {})
    if {"model", "base_url"} & own.keys():
        raise BadSettings("The model is --model (ACTOR_MODEL_PATH), and its address ours: no policy.model here.")
    address = {"model": checkpoint.name, "base_url": f"http://127.0.0.1:{free_port()}/v1"}
    policy = policy_endpoint({**PATIENT, **FREE, **own, **address})
    assert policy is not None  # it is named
    served = {
        "checkpoint": checkpoint.fingerprint,
        "max_prompt_tokens": prompt_tokens(given.max_prompt_tokens, checkpoint),
        **({"arguments": server.arguments} if server.arguments else {}),
    }
    return command.settings_of(given, policy, names, sections, served)


def prompt_tokens(wanted: int | None, checkpoint: Checkpoint) -> int:
    """How long a prompt may be; half of a small model's context is kept for its answer."""
    return int(wanted or min(PROMPT_TOKENS, checkpoint.context // 2))


@contextmanager
def served(
    settings: EvaluationSettings, checkpoint: Checkpoint, server: ServerSettings, folder: Path
) -> Iterator[command.Prepare]:
    """The server, and what makes the rows fit into its context."""
    port = int(settings.policy.url.rpartition(":")[2].partition("/")[0])
    with serving(checkpoint, server, port, folder / "server.log", command.console):
        limit = int((settings.served or {})["max_prompt_tokens"])
        yield partial(shortened, measure=partial(_tokens, settings.policy.url, checkpoint.name), limit=limit)


def shortened(
    todo: Sequence[SampleRequest], measure: Callable[[Task[Any], Row], int], limit: int
) -> list[SampleRequest]:
    """The samples, with rows shortened as in training where their prompt is longer than `limit` tokens.

    A row that cannot be shortened enough stays as it is: the server will refuse it, and it counts as failed.
    """
    rows: dict[tuple[str, int], SampleRequest] = {}
    cut: Counter[str] = Counter()
    for item in todo:
        key = item.set, item.row.number
        if key in rows:
            continue
        task, row = item.row.task, item.row.row
        rows[key] = item
        if sum(len(message["content"].encode()) + 64 for message in task.prompt(row)) <= limit:
            continue  # a token has at least a byte
        fitting = truncate_row(task, row, partial(measure, task), limit)
        if fitting is None:
            cut["longer than that in what cannot be shortened"] += 1
        elif fitting.fields:
            rows[key] = replace(item, row=replace(item.row, row=fitting.row), shortened=fitting.fields)
            cut[f"shortened in {', '.join(fitting.fields)}"] += 1
    if cut:
        words = "; ".join(f"{count:,} rows {what}" for what, count in cut.most_common())
        command.console.print(f"Prompts of at most {limit:,} tokens: {words}")
    fitted = ((item, rows[item.set, item.row.number]) for item in todo)
    return [replace(item, row=each.row, shortened=each.shortened) for item, each in fitted]


def _tokens(url: str, model: str, task: Task[Any], row: Row) -> int:
    """The length of a row's prompt by the server's own tokenizer and chat template."""
    body = json.dumps({"model": model, "messages": task.prompt(row), "add_generation_prompt": True}).encode()
    address = url.removesuffix("/v1") + "/tokenize"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(json.load(answer)["count"])


def evaluate(given: argparse.Namespace, server: ServerSettings) -> Mapping[str, Results]:
    """One checkpoint after another.

    Returns:
        The results by the checkpoint's name, in the order given; none of a dry run.

    Raises:
        BadCheckpoint: before anything is started.
    """
    checkpoints = Checkpoint.find_all(given.model, given.base)
    models = {}
    for checkpoint in checkpoints:
        settings = settings_of(given, checkpoint, server)
        if checkpoint is checkpoints[0]:
            command.say_missing(settings)
        folder = command.folder_of(settings, given, model=len(checkpoints) > 1)
        results = command.run(settings, folder, given, served(settings, checkpoint, server, folder))
        if results is not None:
            models[checkpoint.name] = results
    if len(models) > 1:
        (given.out / f"{given.name or 'eval'}-models.md").write_text(side_by_side.markdown(models), encoding="utf-8")
        command.console.print(side_by_side.rich_table(models, width=command.console.width))
    return models


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate checkpoints."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    parser = command.options("python -m soul.evaluate.local", __doc__)
    from_environment = os.environ.get("ACTOR_MODEL_PATH", "").split() or [DEFAULT_MODEL]
    parser.add_argument("--model", action="append", help="ACTOR_MODEL_PATH; several make one table")
    parser.add_argument("--base", default=os.environ.get("BASE_MODEL_PATH"), help="the model below a LoRA adapter")
    parser.add_argument("--tp", type=positive_int, default=1, help="devices of one replica")
    parser.add_argument("--dp", type=positive_int, default=1, help="replicas")
    parser.add_argument("--max-prompt-tokens", type=positive_int, help="longer rows are shortened as in training")
    parser.add_argument(
        "--platform",
        type=one_of("gpu", "cpu"),
        default=os.environ.get("PLATFORM") or "gpu",
        help="gpu or cpu (PLATFORM)",
    )
    given = parser.parse_intermixed_args(words[:at])
    given.model = given.model or from_environment
    evaluate(given, ServerSettings(given.tp, given.dp, tuple(words[at + 1 :]), given.platform))


if __name__ == "__main__":
    sys.exit(main())
