"""`soul evaluate local [SETS...] [section.key=value ...] [-- arguments of vLLM]`: evaluate checkpoints on SOUL.

    ACTOR_MODEL_PATH=outputs/ditto-rl-hitom/global_step_50 soul evaluate local hitom --limit 100
    soul evaluate local --model Qwen/Qwen3-8B --model outputs/run/global_step_50/lora_adapter --tp 2

A checkpoint is a hub id, a Hugging Face folder, a global_step_N or run folder, or a LoRA adapter. vLLM's OpenAI server
serves them one after another; the rest works as with a model behind an API. Several checkpoints share one table.
"""

import asyncio
import importlib
import json
import os
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from soul.chat.model_chat import served_chat
from soul.cli.arguments import positive_int
from soul.cli.error_border import reports_errors
from soul.cli.redaction import without_secret_values
from soul.errors import BadSettings, JudgeFailure
from soul.evaluate import runner
from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.options import RunOptions, add_server_options, parser
from soul.evaluate.run.preflight import BadPolicy
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.evaluate.run.vllm_server import DIRECT, LOG, ServerSettings, free_port, serving, tail
from soul.judge import Endpoint
from soul.judge.preflight import seconds_to_answer
from soul.judge.roles import policy_endpoint
from soul.policy import TURN_TOKENS
from soul.rows.truncation import truncate_row
from soul.task import Task
from soul.task_types import Row

DEFAULT_MODEL = "sunweiwei/Ditto-8B"  # the released model
PROMPT_TOKENS = 8192  # as in training
FIRST_TOKENS = 64  # most tokens of a checkpoint's first answer: an untrained one may never end it
# The server has all devices to itself: many calls run concurrently, and a turn may wait for hundreds of others.
PATIENT = {"concurrency": 256, "timeout_s": 3600.0, "api_key_env": "none"}
FREE = {"price_in": 0.0, "price_out": 0.0}


def settings_of(
    options: RunOptions, checkpoint: Checkpoint, server: ServerSettings, max_prompt_tokens: int | None = None
) -> EvaluationSettings:
    """The settings of the evaluation of one checkpoint, with an unused port for its server.

    Raises:
        BadSettings: a section, a set or a setting is unknown.
    """
    overrides = options.sections.get("policy", {})
    if {"model", "base_url"} & overrides.keys():
        raise BadSettings("Use --model (ACTOR_MODEL_PATH), not policy.model or policy.base_url: soul serves the model.")
    address = {"model": checkpoint.name, "base_url": f"http://127.0.0.1:{free_port()}/v1"}
    policy = policy_endpoint({**PATIENT, **FREE, **overrides, **address})
    assert policy is not None  # `address` names the model
    identity = {
        "checkpoint": checkpoint.fingerprint,
        "max_prompt_tokens": prompt_tokens(max_prompt_tokens, checkpoint),
        "max_turn_tokens": TURN_TOKENS,
        **({"arguments": without_secret_values(server.arguments)} if server.arguments else {}),
    }
    return runner.settings_of(options, policy, identity)


def prompt_tokens(wanted: int | None, checkpoint: Checkpoint) -> int:
    """The most tokens of a prompt. Half of a small model's context is left for its answer."""
    return int(wanted or min(PROMPT_TOKENS, checkpoint.context // 2))


@contextmanager
def served(
    settings: EvaluationSettings, checkpoint: Checkpoint, server: ServerSettings, folder: Path
) -> Iterator[runner.Served]:
    """Serve a checkpoint."""
    policy, console = settings.policy, runner.console
    port = int(policy.url.rpartition(":")[2].partition("/")[0])
    keys = {endpoint.api_key_env for endpoint in (policy, *settings.gateway.endpoints) if endpoint.api_key_env}
    chat = served_chat(checkpoint.model, checkpoint.adapter, server.arguments, folder)
    for note in chat.notes:
        console.print(f"{checkpoint.name}: {note}")
    server = replace(server, arguments=(*server.arguments, *chat.arguments))
    with serving(checkpoint, server, port, folder / LOG, console, keys):
        _check_first_answer(policy, folder / LOG)
        limit = int((settings.served or {})["max_prompt_tokens"])
        measure = partial(_tokens, policy.url, checkpoint.name)
        yield runner.Served(partial(shortened, measure=measure, limit=limit), chat.escape)


def _check_first_answer(endpoint: Endpoint, log: Path) -> None:
    """Wait for a checkpoint's first answer, as long as its endpoint allows for any answer.

    Raises:
        BadPolicy: it does not answer; the message quotes the server's log.
    """
    brief = {"max_output_tokens": min(FIRST_TOKENS, endpoint.max_output_tokens or FIRST_TOKENS)}
    try:
        with runner.console.status(f"{endpoint.model} writes its first answer; log: {log}"):
            asyncio.run(seconds_to_answer(endpoint.model_copy(update=brief)))
    except JudgeFailure as failure:
        raise BadPolicy(
            f"vLLM serves {endpoint.model}, but does not answer, {failure.cause}: {failure.detail}. "
            f"{log} ends with:\n{tail(log)}"
        ) from failure


def shortened(
    todo: Sequence[SampleRequest], measure: Callable[[Task[Any], Row], int], limit: int
) -> list[SampleRequest]:
    """The samples, with rows whose prompt is longer than `limit` tokens truncated as in training.

    A row that cannot be truncated enough stays as it is: the server refuses it, and its samples fail.
    """
    rows: dict[tuple[str, int], SampleRequest] = {}
    cut: Counter[str] = Counter()
    for request in todo:
        key = request.set, request.row.number
        if key in rows:
            continue
        task, row = request.row.task, request.row.row
        rows[key] = request
        if sum(len(message["content"].encode()) + 64 for message in task.prompt(row)) <= limit:
            continue  # no need to tokenize: a token is at least one byte
        fitting = truncate_row(task, row, partial(measure, task), limit)
        if fitting is None:
            cut["too long even when truncated"] += 1
        elif fitting.fields:
            rows[key] = replace(request, row=replace(request.row, row=fitting.row), shortened=fitting.fields)
            cut[f"truncated in {', '.join(fitting.fields)}"] += 1
    if cut:
        counts = "; ".join(f"{count:,} rows {what}" for what, count in cut.most_common())
        runner.console.print(f"Prompts have at most {limit:,} tokens: {counts}")
    fitted = ((request, rows[request.set, request.row.number]) for request in todo)
    return [replace(request, row=fit.row, shortened=fit.shortened) for request, fit in fitted]


def _tokens(url: str, model: str, task: Task[Any], row: Row) -> int:
    body = json.dumps({"model": model, "messages": task.prompt(row), "add_generation_prompt": True}).encode()
    address = url.removesuffix("/v1") + "/tokenize"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with DIRECT.open(request, timeout=60) as answer:
        return int(json.load(answer)["count"])


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run `soul evaluate local`. Returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    command_line = parser("soul evaluate local", __doc__)
    from_environment = os.environ.get("ACTOR_MODEL_PATH", "").split() or [DEFAULT_MODEL]
    command_line.add_argument("--model", action="append", help="ACTOR_MODEL_PATH; several make one table")
    add_server_options(command_line)
    command_line.add_argument("--max-prompt-tokens", type=positive_int, help="truncate longer rows as in training")
    given = command_line.parse_args(words[:at])
    options = RunOptions.from_arguments(given)
    server = ServerSettings(given.tp, given.dp, tuple(words[at + 1 :]), given.platform)
    checkpoints = Checkpoint.find_all(given.model or from_environment, given.base)
    folders: list[Path] = []
    for checkpoint in checkpoints:
        settings = settings_of(options, checkpoint, server, given.max_prompt_tokens)
        if checkpoint is checkpoints[0]:
            runner.print_missing_sets(settings)
        folder = runner.folder_of(settings, options, model=len(checkpoints) > 1)
        if runner.run(settings, folder, options, served(settings, checkpoint, server, folder)):
            folders.append(folder)
    if len(folders) < 2:
        return 0
    # By name, because comparisons import this package.
    comparison: Any = importlib.import_module("soul.compare.command")
    table = options.out / f"{options.name or 'eval'}-models.md"
    return int(comparison.main([*map(str, folders), "--table", "--out", str(table)]))
