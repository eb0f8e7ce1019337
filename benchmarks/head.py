"""Compare peak memory and time of chunked log-probs with full logits, on this machine's CPU (or one GPU).

    python -m benchmarks.head                                   # 1,024 and 4,096 tokens: minutes, 8 GB
    python -m benchmarks.head --device cuda --tokens 16384 --hidden 4096

Both heads run in turn in one process per size, with one thread and Qwen3's vocabulary. The peak is the memory of a
forward and backward pass beyond weights and hidden states. `--json` prints the raw numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors

ROOT = Path(__file__).resolve().parents[1]
ONE_SIZE = """
import json, sys
from benchmarks.gpu_head import measure
print(json.dumps(measure(*json.loads(sys.argv[1]))))
"""


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = Parser(prog="python -m benchmarks.head", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=positive_int, nargs="+", default=[1024, 4096])
    parser.add_argument("--hidden", type=positive_int, help="hidden size (default: 128 on a CPU, 4,096 on a GPU)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} if args.device == "cpu" else dict(os.environ)
    errors_of = "log-probs off by", "hidden's gradient", "weight's"
    table = Table("tokens", "head", "trained", "peak GB", "seconds", *errors_of)
    for tokens in args.tokens:
        size = json.dumps([args.device, tokens, args.hidden])
        command = [sys.executable, "-c", ONE_SIZE, size]
        answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if answer.returncode:
            sys.exit(answer.stderr)
        measured = json.loads(answer.stdout.splitlines()[-1])
        if args.json:
            print(json.dumps(measured))
            continue
        for head in measured["heads"]:
            errors = (f"{head[name]:.1e}" for name in head if name.endswith("_error"))
            costs = f"{head['peak_gb']:.2f}", f"{head['seconds']:.1f}"
            table.add_row(f"{tokens:,}", head["head"], "yes" if head["trained"] else "no", *costs, *errors)
    if not args.json:
        Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
