"""One contender of `benchmarks.evaluate`, in its own process: evaluates the rows and prints its times as JSON.

    python -m benchmarks.evaluate_contenders ours http://127.0.0.1:PORT/v1 hitom.parquet 64     # concurrency

The caller pins it to a core. A few rows are evaluated before the clock starts, so that imports and first connections
are not measured; everything that depends on the rows is: reading, requests, scoring, writing.
"""

import asyncio
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

MODEL = "fixed"
WARM_UP = 64  # rows before the clock starts
Evaluate = Callable[["Work"], int]


class Work(NamedTuple):
    """A contender's work: `limit` rows of a file (None: all), and a folder for its output."""

    url: str
    rows: Path
    concurrency: int
    folder: Path = Path()
    limit: int | None = None

    def records(self) -> list[dict[str, Any]]:
        """The rows as they are in the file."""
        return pq.read_table(self.rows).to_pylist()[: self.limit]


def ours(work: Work) -> int:
    """The whole command, `soul evaluate`: journal, scores, table, samples.parquet and the HTML report."""
    from soul.evaluate import command

    words = [str(work.rows), f"policy.model={MODEL}", f"policy.concurrency={work.concurrency}"]
    for section in ("policy", "judge"):
        words += [f"{section}.base_url={work.url}", f"{section}.api_key_env=none"]
    limit = ["--limit", str(work.limit)] if work.limit else []
    if command.main([*words, "--out", str(work.folder), *limit]):
        return 0
    (results,) = work.folder.glob("*/results.json")
    sets = json.loads(results.read_text(encoding="utf-8"))["sets"]
    return sum(one["samples"] - one["invalid"] for one in sets.values())


def engine(work: Work) -> int:
    """The command without its reports: rows, requests, journal, scores, intervals, table."""
    from soul.evaluate.numbers.results import summarise
    from soul.evaluate.run import engine as path
    from soul.evaluate.run.journal import Journal
    from soul.evaluate.run.settings import EvaluationSettings, sample_requests
    from soul.evaluate.tables import run_table
    from soul.host_resources import infrequent_gc
    from soul.judge import Endpoint, GatewaySettings

    policy = Endpoint(model=MODEL, base_url=work.url, api_key_env=None, concurrency=work.concurrency)
    gateway = GatewaySettings.from_sections({"judge": {"base_url": work.url, "api_key_env": "none", "model": MODEL}})
    settings = EvaluationSettings(policy=policy, gateway=gateway, sets={"hitom": work.rows}, limit=work.limit)
    with infrequent_gc(), closing(Journal(work.folder)) as journal:
        asyncio.run(path.evaluate(settings, sample_requests(settings), journal, lambda sample: None))
        results = summarise(journal.samples.values(), ["hitom"])
        print(json.dumps(results.to_json()), run_table.markdown(results))
    return sum(one.samples - one.invalid for one in results.sets.values())


def plain(work: Work) -> int:
    """The SDK and a semaphore: no scores, only a count of answers."""
    import openai

    async def ask(client: Any, gate: asyncio.Semaphore, messages: Any) -> bool:
        async with gate:
            completion = await client.chat.completions.create(model=MODEL, messages=messages)
        return bool(completion.choices[0].message.content)

    async def all_of_them() -> int:
        http = openai.DefaultAioHttpClient()
        gate = asyncio.Semaphore(work.concurrency)
        async with openai.AsyncOpenAI(api_key="EMPTY", base_url=work.url, max_retries=0, http_client=http) as client:
            answers = [ask(client, gate, record["prompt"]) for record in work.records()]
            return sum(await asyncio.gather(*answers))

    return asyncio.run(all_of_them())


def inspect_ai(work: Work) -> int:
    """A task of inspect_ai with its own solver and scorer, log included."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser, get_model
    from inspect_ai.scorer import pattern
    from inspect_ai.solver import generate

    samples = [
        Sample(
            input=[ChatMessageUser(content=m["content"]) for m in record["prompt"]],
            target=record["extra_info"]["correct_answer"],
        )
        for record in work.records()
    ]
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=pattern(r"<answer>(\w+)</answer>"))
    model = get_model(f"openai-api/local/{MODEL}", base_url=work.url, api_key="EMPTY", memoize=False)
    (log,) = eval(
        task,
        model=model,
        display="none",
        log_dir=str(work.folder),
        max_connections=work.concurrency,
        max_samples=work.concurrency,
    )
    return log.results.completed_samples if log.results else 0


CONTENDERS: dict[str, Evaluate] = {each.__name__: each for each in (ours, engine, plain, inspect_ai)}


def measured(evaluate: Evaluate, work: Work) -> dict[str, float]:
    """Seconds, CPU seconds of this process and its children, and the number of answered rows."""
    with tempfile.TemporaryDirectory(prefix="evaluate-benchmark-") as folder, redirect_stdout(io.StringIO()):
        evaluate(work._replace(folder=Path(folder) / "before", limit=WARM_UP))
        start, cpu = time.perf_counter(), sum(os.times()[:4])
        answered = evaluate(work._replace(folder=Path(folder) / "now"))
        cpu, seconds = sum(os.times()[:4]) - cpu, time.perf_counter() - start
    return {"seconds": seconds, "cpu": cpu, "answered": answered}


if __name__ == "__main__":
    contender, url, rows, concurrency = sys.argv[1:]
    print(json.dumps(measured(CONTENDERS[contender], Work(url, Path(rows), int(concurrency)))))
