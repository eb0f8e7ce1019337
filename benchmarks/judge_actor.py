"""Load the run's judge actor through Ray: how many calls a second it carries, and what a call costs.

    python -m benchmarks.judge_actor [--workers 4] [--calls 2000] [--at-once 32] [--latency 0]

The actor is the one of a training run (`ditto.judging.actor`), with its cache and limits on. Each worker is a Ray actor
with a gateway as an agent-loop worker has it, which asks distinct questions, `--at-once` at a time, of a local server
of fixed latency. The goal is 500 calls a second at latency 0; a step of the paper needs 5 to 40. `cpu` is the actor's
CPU time per call: its inverse is what the actor carries where it has a core for itself.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import ray

from benchmarks.judge import ANSWER, gateway
from benchmarks.server import served
from benchmarks.side_by_side import console, print_load
from ditto.judging import actor as judge_actor
from soul.cli.arguments import non_negative_float, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.judge import GatewaySettings

WORDS = 150  # of the judged text
GOAL = 500


@ray.remote(num_cpus=0)
class Worker:
    """An agent-loop worker's part."""

    async def ask(self, settings_json: str, first: int, calls: int, at_once: int) -> float:
        """Ask so many questions. Returns this process's CPU seconds."""
        connection = judge_actor.remote_gateway(GatewaySettings.model_validate_json(settings_json))
        ask, left = gateway(connection.judge, WORDS), iter(range(first, first + calls))

        async def asker() -> None:
            for number in left:
                await ask(number)

        cpu = time.process_time()
        await asyncio.gather(*(asker() for _ in range(at_once)))
        return time.process_time() - cpu


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load."""
    parser = Parser(prog="python -m benchmarks.judge_actor", description=__doc__)
    parser.add_argument("--workers", type=positive_int, default=4)
    parser.add_argument("--calls", type=positive_int, default=2000, help="per worker")
    parser.add_argument("--at-once", type=positive_int, default=32, help="calls of a worker at the same time")
    parser.add_argument("--latency", type=non_negative_float, default=0.0)
    args = parser.parse_args(arguments)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        with served(ANSWER, args.latency) as (url, _), tempfile.TemporaryDirectory() as folder:
            section = {"model": "fixed", "base_url": url, "api_key_env": "none", "structured": "json_schema"}
            settings = GatewaySettings.from_sections({"judge": {**section, "concurrency": 512}})
            actor = judge_actor.start(settings, cache_dir=Path(folder))
            process, text = psutil.Process(ray.get(actor.process_id.remote())), settings.model_dump_json()
            workers = [Worker.remote() for _ in range(args.workers)]
            ray.get([worker.ask.remote(text, 1000 * i, 20, 8) for i, worker in enumerate(workers)])  # the start
            before, start = sum(process.cpu_times()[:2]), time.perf_counter()
            first = [1_000_000 * (i + 1) for i in range(args.workers)]
            asked = [w.ask.remote(text, n, args.calls, args.at_once) for w, n in zip(workers, first, strict=True)]
            of_workers = sum(ray.get(asked))
            seconds, cpu = time.perf_counter() - start, sum(process.cpu_times()[:2]) - before
    finally:
        ray.shutdown()
    calls = args.workers * args.calls
    console.print(
        f"{calls} calls in {seconds:.1f} s: {calls / seconds:.0f} calls a second (goal: {GOAL}); the actor took "
        f"{cpu / seconds:.0%} of a core, {1000 * cpu / calls:.2f} ms of CPU per call, the workers "
        f"{1000 * of_workers / calls:.2f} ms per call",
        soft_wrap=True,
    )
    print_load()
    return 0


if __name__ == "__main__":
    sys.exit(main())
