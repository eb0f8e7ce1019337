"""Mistakes on the command lines of the tools: each kind is one paragraph with exit code 2, and nothing is written.

One row for each kind of mistake and tool; the tests of a tool have the rest. The training runs' are in
test_training_mistakes.py.
"""

import importlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from soul.examples.command import write
from tests.mistakes.mistake import SECRET, Mistake, assert_one_paragraph, run_as_process, run_in_process
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import sample

ROOT = Path(__file__).resolve().parents[2]
POLICY = ["policy.model=m", "policy.base_url=http://127.0.0.1:1/v1", "policy.api_key_env=none"]
NUMBER = "expected a whole number, 1 or more"
OUT = ["--out", "{tmp}/built.parquet"]
LOCAL = ["{hitom.parquet}", "--platform", "cpu", "--dry-run"]
DISTILL = ["--out", "{tmp}/distilled"]
FIGURES = ["--out", "{tmp}/figures"]
KEYS = [f"judge.api_key={SECRET}", f"judge.api_key_env={SECRET}", f"--seed={SECRET}", SECRET]  # where users put a key
# module -> (words, what the user reads)
COMMANDS: Mapping[str, Sequence[tuple[Sequence[str], str]]] = {
    "soul.evaluate.command": [
        (["{hitom.parquet}", *POLICY, "--limit", "0"], f"--limit: 0: {NUMBER}"),
        (["{hitom.parquet}", *POLICY, "--out", "{file}"], "cannot write to {file}"),
        (["nosuch", *POLICY], "There is no evaluation set 'nosuch'"),
        (["{hitom.parquet}", *POLICY, "nosuch.key=1"], "'nosuch.key': write section.key=value"),
        (["{columns.parquet}", *POLICY], "columns.parquet"),
        (["hitom", "--data", "{empty_folder}", *POLICY], "DATA_DIR"),
        (["{hitom.parquet}", "policy.model=m"], "OPENAI_API_KEY is not set"),
        (["{hitom.parquet}", *POLICY, "policy.max_attempts=1"], "http://127.0.0.1:1/v1"),
        *((["{hitom.parquet}", *POLICY, word], "") for word in KEYS),
    ],
    "soul.evaluate.local": [
        ([*LOCAL, "--model", "{no_weights}"], "no weights (*.safetensors)"),
        ([*LOCAL, "--model", "{lost_checkpoint}"], "names global_step_50, which does not exist"),
        ([*LOCAL, "--model", "{adapter_without_base}"], "names no base model"),
        (["{hitom.parquet}", "--dry-run", "--platform", "tpu"], "--platform: 'tpu': expected gpu or cpu"),
    ],
    "soul.evaluate.outputs": [
        (["{empty_folder}"], "has no settings.json"),
        (["{broken_run}"], "samples.jsonl: line 1 is not a session record"),
    ],
    "soul.compare.command": [
        (["{run}"], "there is only one side"),
        (["{run}", "{run}"], "is given twice"),
        (["{run}", "{broken_run}"], "samples.jsonl: line 1 is not a session record"),
        (["{run}", "{run_of_other_rows}"], "hitom"),
    ],
    "soul.figures.command": [
        (FIGURES, "name training runs (--runs NAME=DIR) or evaluations (--evals NAME=DIR)"),
        ([*FIGURES, "--runs", "a={torn_training}"], "metrics.jsonl, line 2: this is no line of metrics"),
    ],
    "soul.judge.command": [
        ([], "required: command"),
        *((["show", word], "") for word in KEYS),
    ],
    "soul.examples.endpoint": [(["nosuch-command"], "nosuch-command: No such file")],
    "sft.distill.__main__": [
        (DISTILL, "there is no sample. Add TASK=EXPERT"),
        *(([*DISTILL, word], "") for word in KEYS),
    ],
    "data.sets": [(["{tmp}/nosuch"], "there is no folder {tmp}/nosuch")],
    "data.check": [
        (
            ["{hitom.parquet}", "--against", "{file}", "--without-overlap", "{hitom.parquet}"],
            "is an input of this command",
        ),
        (["{page.parquet}"], "It is a web page, not the data"),
        (["{hitom.parquet}", "--without-overlap", "{tmp}/y.parquet"], "use --against"),
    ],
    "data.hitom": [
        (["convert", "{tmp}/nosuch.json", *OUT], "{tmp}/nosuch.json"),
        (["convert", "{page.json}", *OUT], "It is a web page, not the data"),
    ],
    **{f"data.{name}": [(["convert", "{null.json}", *OUT], "{null.json}")] for name in ("coser", "fantom", "paratomi")},
    "data.humanual": [(["convert", "--set", "chat", "{null.json}", *OUT], "{null.json}")],
    "data.mistakes": [(["convert", "{empty.csv}", *OUT], "misconception_mapping.csv")],
    "soul.rows.convert": [
        (["{lines.jsonl}", "--task", "hitom", "--out", "{lines.jsonl}"], "is an input of this command")
    ],
    "data.intents": [
        (["{lines.jsonl}", "--out", "{tmp}/intents.jsonl"], "line 1: no conversation of PRISM"),
        *((["{lines.jsonl}", "--out", "{tmp}/intents.jsonl", word], "") for word in KEYS),
    ],
}
CASES = [(module, Mistake(words, [said])) for module, mistakes in COMMANDS.items() for words, said in mistakes]
LAUNCHES = [
    ("recipe/ditto/eval.sh", Mistake([], ["say 'api'"])),
    ("recipe/ditto/distill.sh", Mistake([], ["EXPERTS="])),
    ("recipe/ditto/distill.sh", Mistake([], [f"LIMIT=0: {NUMBER}"], {"EXPERTS": "hitom=x", "LIMIT": "0"})),
    ("scripts/env", Mistake(["tpu"], ["expected cpu, gpu or auto"])),
]
TEXTS = {  # file -> its content
    "null.json": b"null",
    "lines.jsonl": b'{"a": 1}\n',
    "empty.csv": b"",
    "page.json": b"<!DOCTYPE html>\n<title>Sign in</title>",
    "page.parquet": b"<html>",
    "file": b"x",
    "no_weights/config.json": b"{}",
    "lost_checkpoint/latest_checkpointed_iteration.txt": b"50",
    "adapter_without_base/adapter_config.json": b"{}",
    "torn_training/metrics.jsonl": b'{"step": 1, "ditto/reward_draft": 0.5}\n{"step": 2, "dit',
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> path of everything above, of task files and of runs."""
    root = tmp_path_factory.mktemp("mistakes")
    write(["hitom"], 3, root / "hitom.parquet")
    (root / "empty_folder").mkdir()
    pq.write_table(pa.table({"a": [1]}), root / "columns.parquet")
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(text)
    finished_run(root / "run", [sample(1.0, number) for number in range(3)])
    finished_run(root / "run_of_other_rows", [sample(1.0, number) for number in range(10, 12)])
    shutil.copytree(root / "run", root / "broken_run")
    (root / "broken_run" / "samples.jsonl").write_bytes(b"\xff\xfe\n")
    return {path.name: path for path in root.iterdir()} | {"tmp": root}


@pytest.mark.parametrize(("module", "mistake"), CASES, ids=[f"{module} {mistake}" for module, mistake in CASES])
def test_a_mistake_is_one_paragraph(
    module: str,
    mistake: Mistake,
    places: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before, mistake = sorted(places["tmp"].rglob("*")), mistake.at(places)
    program = importlib.import_module(module)
    main = getattr(program, "BUILDER", program).main
    assert_one_paragraph(run_in_process(main, mistake, monkeypatch, capsys), mistake)
    assert list(tmp_path.iterdir()) == [] and sorted(places["tmp"].rglob("*")) == before


@pytest.mark.parametrize(("script", "mistake"), LAUNCHES, ids=[f"{script} {mistake}" for script, mistake in LAUNCHES])
def test_a_mistake_in_a_launch_is_one_paragraph(script: str, mistake: Mistake, tmp_path: Path) -> None:
    assert_one_paragraph(run_as_process(["bash", str(ROOT / script)], mistake, tmp_path), mistake)
    assert list(tmp_path.iterdir()) == []
