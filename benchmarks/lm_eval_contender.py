"""lm-eval as a contender of `benchmarks.evaluate`, in its own interpreter: standard library and lm_eval only.

    PYTHON benchmarks/lm_eval_contender.py --url http://127.0.0.1:PORT/v1 --rows rows.jsonl --concurrency 64

Uses lm-eval's local-chat-completions model. A line of the file is {"question", "answer"}. Prints its times as JSON, as
evaluate_contenders.py does.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path

TASK = """\
task: soul_rows
dataset_path: json
dataset_kwargs:
  data_files: {rows}
test_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: []
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--warm-up", type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lm-eval-benchmark-") as folder:
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE=folder, OPENAI_API_KEY="EMPTY")
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        (Path(folder) / "soul_rows.yaml").write_text(TASK.format(rows=args.rows.resolve()), encoding="utf-8")
        print(json.dumps(measured(args, folder)))


def measured(args: argparse.Namespace, folder: str) -> dict[str, float]:
    """Seconds, CPU seconds of this process and its children, and the number of answered rows, after a warm-up."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=folder, include_defaults=False)
    where = f"model=fixed,base_url={args.url}/chat/completions,num_concurrent={args.concurrency}"

    def evaluate(limit: int | None) -> int:
        results = simple_evaluate(
            model="local-chat-completions",
            model_args=f"{where},max_retries=1,tokenized_requests=False,tokenizer_backend=None",
            tasks=["soul_rows"],
            task_manager=manager,
            apply_chat_template=True,
            limit=limit,
        )
        return sum(bool(sample["resps"][0][0]) for sample in results["samples"]["soul_rows"])

    with contextlib.redirect_stdout(io.StringIO()):
        evaluate(args.warm_up)
        start, cpu = time.perf_counter(), sum(os.times()[:4])
        answered = evaluate(args.limit)
        cpu, seconds = sum(os.times()[:4]) - cpu, time.perf_counter() - start
    return {"seconds": seconds, "cpu": cpu, "answered": answered}


if __name__ == "__main__":
    main()
