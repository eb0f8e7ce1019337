"""recipe/ditto/eval.sh as a user calls it: variables in, all 27 sets, one table out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.suites import soul_v1
from soul.testing import FakeOpenAI, Text

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = str(ROOT / "recipe" / "ditto" / "eval.sh")


def run(*words, **variables):
    known = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "JUDGE_"))}
    environment = {**known, "PYTHON": sys.executable, "PYTHONPATH": f"{ROOT}/agents:{ROOT}", **variables}
    return subprocess.run(["bash", SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=300)


def under_test(request):
    return Text("<answer>B</answer>") if request.body["model"] == "under-test" else answer(request)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for found in soul_v1.SETS.values():
        path = folder / "sim_eval_data" / f"{found.file}.parquet"
        write([found.task], 2, path)
        # Without the card, which says that the rows are invented: no published number would be beside them.
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    return folder


def test_all_27_sets_in_one_table(data, tmp_path):
    with FakeOpenAI(under_test) as fake:
        done = run(
            "api",
            "judge.concurrency=8",
            OPENAI_BASE_URL=fake.url,
            OPENAI_API_KEY="sk-sentinel-5150",
            OPENAI_AGENT_MODEL="under-test",
            OPENAI_AGENT_BASE_URL=fake.url,
            DATA_DIR=str(data),
            OUTPUT_DIR=str(tmp_path),
            EXPERIMENT_NAME="mine",
            LIMIT="1",
            N="2",
            COLUMNS="160",
        )
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.glob("mine-*")
    results = json.loads((folder / "results.json").read_text())
    assert len(results["sets"]) == 27
    samples = [json.loads(line) for line in (folder / "samples.jsonl").open()]
    assert len(samples) == 54 and {sample["set"] for sample in samples} == set(soul_v1.SETS)
    markdown = (folder / "table.md").read_text()
    assert all(name in markdown for name in soul_v1.SETS) and "macro average, 27 sets" in done.stdout
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"sk-sentinel" not in written and "sk-sentinel" not in done.stdout + done.stderr
