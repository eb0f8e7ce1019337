"""Mistakes of users on the command lines of the tools: each is one paragraph with exit code 2, and nothing is written.

The trainings' are in test_training_mistakes.py, those with the sources of the builders in test_builder_mistakes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.mistakes.mistake import SECRET, AssertRefused, Mistake, assert_one_paragraph, run_as_process

POLICY = ["policy.model=m", "policy.base_url=http://127.0.0.1:1/v1", "policy.api_key_env=none"]
NUMBER = "expected a whole number, 1 or more"
ABOVE_ZERO = "expected a number above 0"
SECTIONS = "write section.key=value"
KEY = "Extra inputs are not permitted"


def each(start: Sequence[str], cases: Sequence[tuple[Sequence[str], str]], end: Sequence[str] = ()) -> list[Mistake]:
    """A mistake for each (words, what the user reads), with the words that all have in common around them."""
    return [Mistake(" ".join(words) or "nothing", [*start, *words, *end], expects=[text]) for words, text in cases]


EVALUATE = [
    *each(
        ["{hitom.parquet}", *POLICY],
        [
            (["--limit", "0"], f"--limit: 0: {NUMBER}"),
            (["--n", "0"], f"--n: 0: {NUMBER}"),
            (["--deadline", "0"], f"--deadline: 0: {ABOVE_ZERO}"),
            (["--nosuch"], "unrecognized arguments: --nosuch"),
            (["--out", "{file}"], "{file} is a file"),
            (["--out", "/proc/out"], "cannot write to /proc/out"),
            (["--suite", "nosuch"], "There is no suite 'nosuch'"),
            (["--suite", "paper"], "or a suite (paper), not both"),
            (["nosuch"], "There is no evaluation set 'nosuch'"),
            (["nosuch.key=1"], f"'nosuch.key': {SECTIONS}"),
            (["policy.nosuch=1"], f"policy.nosuch: {KEY}"),
            (["policy.temperature=-1"], "policy.temperature=-1"),
            (["tasks.hitom.nosuch=1"], "nosuch"),
        ],
    ),
    *(
        Mistake(f"{name}.parquet", ["{" + name + ".parquet}", *POLICY, "--limit", "2"], expects=[f"{name}.parquet"])
        for name in ("truncated", "columns", "no_rows")
    ),
    Mistake("a set that is not there", ["{tmp}/x.parquet", *POLICY], expects=["There is no file {tmp}/x.parquet"]),
    Mistake("no data", ["hitom", "--data", "{empty_folder}", *POLICY], expects=["No file for hitom", "DATA_DIR"]),
    Mistake("no model", ["{hitom.parquet}"], expects=["Which model?", "OPENAI_AGENT_MODEL"]),
    Mistake("no key", ["{hitom.parquet}", "policy.model=m"], expects=["OPENAI_API_KEY is not set"]),
    Mistake("nobody there", ["{hitom.parquet}", *POLICY, "policy.max_attempts=1"], expects=["http://127.0.0.1:1/v1"]),
    Mistake("no run to judge again", ["--rescore", "{tmp}/x"], expects=["there is no folder {tmp}/x"]),
    Mistake("a file to judge again", ["--rescore", "{file}"], expects=["{file} is a file; name a folder"]),
]
LOCAL = [
    *each(
        ["{hitom.parquet}", "--platform", "cpu", "--dry-run"],
        [
            (["--model", "{no_weights}"], "no weights (*.safetensors)"),
            (["--model", "{bad_config}"], "not valid JSON"),
            (["--model", "{short_weights}"], "has 65 bytes and should have 4,056"),
            (["--model", "{lost_shard}"], "model-00001-of-00002.safetensors of the weights is missing"),
            (["--model", "{lost_checkpoint}"], "names global_step_50, which does not exist"),
            (["--model", "{adapter_without_base}"], "names no base model"),
            (["--model", "{adapter_without_weights}"], "no weights (*.safetensors)"),
            (["--model", "{tmp}/nosuch"], "there is no such folder"),
            (["--model", "owner/model", "policy.model=x"], "not policy.model or policy.base_url"),
            (["--tp", "0"], f"--tp: 0: {NUMBER}"),
        ],
    ),
    Mistake(
        "PLATFORM=tpu",
        ["{hitom.parquet}", "--dry-run"],
        {"PLATFORM": "tpu"},
        ["--platform: 'tpu': expected gpu or cpu"],
    ),
]
DAMAGED = {
    "run_without_chosen": "has no chosen.json",
    "run_with_a_list": "chosen.json is not a JSON object",
    "run_without_model": "do not name the model and the requested samples",
    "run_with_broken_sample": "samples.jsonl: line 1 is not a session record",
    "empty_folder": "has no settings.json",
    "file": "is a file; name a folder",
}
REPORT = each([], [(["{" + name + "}"], text) for name, text in DAMAGED.items()])
COMPARE = [
    *each(["{run}"], [(["{" + name + "}"], text) for name, text in DAMAGED.items()]),
    *each(
        ["{run}", "{other_run}"],
        [
            (["--out", "{file}/x.md"], "{file} is a file"),
            (["--out", "{empty_folder}"], "is a folder; name a file"),
            (["{run}"], "is given twice"),
        ],
    ),
    Mistake("one run", ["{run}"], expects=["required: runs"]),
    Mistake("no common rows", ["{run}", "{run_of_other_rows}"], expects=["hitom"]),
]
TABLE = each(
    ["{run}"],
    [
        *((["{" + name + "}"], text) for name, text in DAMAGED.items()),
        (["{tmp}/run"], "is given twice"),
        (["--out", "{empty_folder}"], "is a folder; name a file"),
        (["--out", "/proc/x/y.md"], "cannot write to /proc/x"),
    ],
)
FIGURES = each(
    ["--out", "{tmp}/figures"],
    [
        ([], "name trainings (--runs NAME=DIR), evaluations (--evals NAME=DIR)"),
        (["--runs", "a={tmp}/nosuch"], "there is no folder {tmp}/nosuch"),
        (["--runs", "a={empty_folder}"], "has no metrics.jsonl with a step of training"),
        (["--runs", "a={torn_training}"], "metrics.jsonl, line 2: this is no line of metrics"),
        (["--runs", "a={training}", "a={run}"], "'a' is given twice"),
        (["--runs", "a b={training}", "a_b={run}"], "the files of 'a b' and 'a_b' would have the same names"),
        (["--evals", "a={training}"], "has no settings.json"),
        (["--evals", "a={run}", "--baseline", "b"], "--evals has no such name. It has a."),
        (["--runs", "a={training}", "--out", "{file}"], "{file} is a file"),
    ],
)
JUDGE = [
    *each([], [([], "required: command"), (["nosuch"], "invalid choice: 'nosuch'")]),
    *each(
        ["show"],
        [
            (["nosuch.x=1"], f"'nosuch.x': {SECTIONS}"),
            (["judge.jury=5"], "judge.jury=5"),
        ],
    ),
    *each(
        ["agree"],
        [
            ([], "required: --labels"),
            (["--labels", "{tmp}/nosuch"], "{tmp}/nosuch: No such file"),
            (["--labels", "{text.json}"], "cannot be read as JSON"),
            (["--labels", "{labels.jsonl}"], "line 1, field real"),
            (["--labels", "{labels.jsonl}", "--repeats", "0"], f"--repeats: 0: {NUMBER}"),
            (["--labels", "{labels.jsonl}", "--json", "{file}/x"], "{file} is a file"),
        ],
    ),
    *each(
        ["canaries"], [(["--json", "{empty_folder}"], "is a folder; name a file"), ([], "OPENAI_API_KEY is not set")]
    ),
]
TASKS = each([], [(["nosuch"], "unrecognized arguments: nosuch")])
EXAMPLES = each(
    [],
    [
        ([], "required: TASK, --out"),
        (["nosuch", "--out", "{tmp}/e.parquet"], "invalid choice: 'nosuch'"),
        (["hitom", "--rows", "0", "--out", "{tmp}/e.parquet"], f"--rows: 0: {NUMBER}"),
        (["hitom", "--out", "{folder.parquet}"], "is a folder; name a file"),
    ],
)
ENDPOINT = each(
    [],
    [([], "name the command"), (["nosuch-command"], "nosuch-command: No such file"), (["{tmp}"], "Permission denied")],
)
DISTILL = each(
    ["--out", "{tmp}/distilled"],
    [
        ([], "there is no sample. Add TASK=EXPERT"),
        (["hitom={tmp}/nosuch", "--data", "{empty_folder}"], "hitom"),
        (["hitom"], "hitom"),
        (["--n", "0"], f"--n: 0: {NUMBER}"),
        (["--val-share", "1"], "a number from 0 to below 1"),
        (["--margin", "-1"], "use a number that is at least 0"),
        (["--from-traces", "{tmp}/nosuch"], "there is no folder"),
        *(([f"--out={{{name}}}"], "damaged") for name in ("distilled_text", "distilled_entry")),
        (["--from-traces", "{traced_text}"], "line 1 is not a session record"),
        (["--dry-run"], "it needs TASK=EXPERT"),
        (["judge.model=x"], "nothing is sampled without TASK=EXPERT"),
        (["--out", "{file}"], "{file} is a file"),
    ],
)
SETS = each(
    [],
    [
        ([], "required: SOURCES"),
        (["{tmp}/nosuch"], "there is no folder {tmp}/nosuch"),
        (["{empty_folder}"], "{empty_folder} holds no source of any of these sets"),
        (["{tmp}", "--out", "{file}"], "{file} is a file"),
    ],
)
CHECK = [
    *each([], [(["{" + f"{name}.parquet" + "}"], f"{name}.parquet") for name in ("truncated", "columns")]),
    *each(
        ["{hitom.parquet}"],
        [
            (["--against", "{tmp}/nosuch.parquet"], "nosuch.parquet: there is no such file"),
            (["--json", "{empty_folder}"], "is a folder; name a file"),
            (["--without-overlap", "{tmp}/y.parquet"], "use --against"),
            (["--without-extra", "{hitom.parquet}"], "is the file that would be copied"),
            (["--against", "{sotopia.parquet}", "--without-overlap", "/proc/y.parquet"], "cannot write to /proc"),
        ],
    ),
]
KEYS = [  # where users put a key
    f"judge.api_key={SECRET}",
    f"judge.api_key_env={SECRET}",
    f"api_key={SECRET}",
    f"judge.by_task.hitom.api_key={SECRET}",
    f"policy.api_key={SECRET}",
    f"--judge.api_key={SECRET}",
    f"--seed={SECRET}",
    SECRET,
]
COMMANDS: Mapping[str, Sequence[Mistake]] = {
    "soul.evaluate.__main__": [*EVALUATE, *each(["{hitom.parquet}", *POLICY], [([word], "") for word in KEYS])],
    "soul.evaluate.local": LOCAL,
    "soul.evaluate.report.outputs": REPORT,
    "soul.compare.__main__": COMPARE,
    "soul.compare.table": TABLE,
    "soul.figures.__main__": FIGURES,
    "soul.judge.__main__": [*JUDGE, *each(["show"], [([word], "") for word in KEYS])],
    "soul.tasks.__main__": TASKS,
    "soul.examples.__main__": EXAMPLES,
    "soul.examples.endpoint": ENDPOINT,
    "sft.distill.__main__": [*DISTILL, *each(["--out", "{tmp}/distilled"], [([word], "") for word in KEYS])],
    "data.sets": SETS,
    "data.check": CHECK,
}
CASES = [(module, mistake) for module, mistakes in COMMANDS.items() for mistake in mistakes]


def names() -> Iterator[str]:
    for module, mistake in CASES:
        yield f"{module.removesuffix('.__main__')}: {mistake}".replace(SECRET, "SECRET")[:100]


@pytest.mark.parametrize(("module", "mistake"), CASES, ids=names())
def test_a_mistake_is_one_paragraph(module: str, mistake: Mistake, assert_refused: AssertRefused) -> None:
    assert_refused(module, mistake)


LAUNCHES = [
    ("recipe/ditto/eval.sh", Mistake("no mode", [], expects=["say 'api'"])),
    (
        "recipe/ditto/eval.sh",
        Mistake("LIMIT=0", ["api", "{hitom.parquet}", *POLICY], {"LIMIT": "0"}, [f"--limit: 0: {NUMBER}"]),
    ),
    ("recipe/ditto/distill.sh", Mistake("no EXPERTS", [], expects=["EXPERTS="])),
    ("recipe/ditto/distill.sh", Mistake("no expert", [], {"EXPERTS": "hitom"}, ["is not of the form TASK=EXPERT"])),
    ("recipe/ditto/distill.sh", Mistake("LIMIT=0", [], {"EXPERTS": "hitom=x", "LIMIT": "0"}, [f"LIMIT=0: {NUMBER}"])),
    ("scripts/env", Mistake("a platform that there is not", ["tpu"], expects=["expected cpu, gpu or auto"])),
]


@pytest.mark.parametrize(("script", "mistake"), LAUNCHES, ids=[f"{script} {mistake}" for script, mistake in LAUNCHES])
def test_a_mistake_in_a_launch_is_one_paragraph(
    script: str, mistake: Mistake, places: Mapping[str, Path], tmp_path: Path
) -> None:
    root = Path(__file__).parents[2]
    assert_one_paragraph(run_as_process(["bash", str(root / script)], mistake, places, tmp_path), mistake, places)
    assert list(tmp_path.iterdir()) == []
