"""Mistakes of users with the builders of task files, the demo and the benchmarks: one paragraph, no file."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.mistakes.mistake import SECRET, AssertRefused, Mistake
from tests.mistakes.test_tool_mistakes import KEYS, NUMBER, each

CONVERT = {  # builder -> words between `convert` and the source
    "alignx": [],
    "coser": [],
    "fantom": [],
    "hitom": [],
    "humanual": ["--set", "chat"],
    "lifechoices": [],
    "mirrorbench": [],
    "paratomi": [],
    "sim_arena": ["math"],
    "social_r1": [],
    "sotopia": [],
    "twinvoice": [],
    "userllm": [],
}
SOURCES = ["{tmp}/nosuch.json", "{null.json}"]
OUT = ["--out", "{tmp}/built.parquet"]
GENERATE = each(
    ["generate", "--stories", "2", *OUT],
    [
        (["--stories", "0"], f"--stories: 0: {NUMBER}"),
        (["--orders", "7"], "7"),
        (["--val-fraction", "1"], "a number above 0 and below 1"),
        (["--out", "{file}/x.parquet"], "{file} is a file"),
        (["--train-out", "{tmp}/t.parquet"], "give either --out FILE"),
    ],
)
SPLIT = each(
    ["generate", "--stories", "2"],
    [
        ([], "give either --out FILE"),
        (["--train-out", "{tmp}/t.parquet"], "give either --out FILE"),
        (["--train-out", "{tmp}/t.parquet", "--val-out", "{tmp}/t.parquet"], "both name"),
    ],
)
OTHERS: Mapping[str, list[Mistake]] = {
    "data.hitom": [*GENERATE, *SPLIT],
    "data.fantom": each(["convert", "{object.json}", *OUT], [(["--test-conversations", "0"], NUMBER)]),
    "data.mistakes": each(
        ["convert", "{empty.csv}", *OUT], [(["--rows", "0"], NUMBER), ([], "misconception_mapping.csv")]
    ),
    "data.sim_arena": each(["convert", "math", "{list.json}", *OUT], [(["--math-root", "{file}"], "is a file")]),
    "data.intents": [
        *each(
            ["{lines.jsonl}", "--out", "{tmp}/intents.jsonl"],
            [
                ([], "line 1: no conversation of PRISM"),
                (["--out", "{file}/intents.jsonl"], "{file} is a file"),
                *(([word], "") for word in KEYS),
            ],
        ),
        Mistake("no source", ["judge.model=x", "--out", "{tmp}/intents.jsonl"], expects=["Name PRISM's"]),
    ],
    "benchmarks.judge": each([], [(["--calls", "0"], NUMBER), (["--repeats", "0"], NUMBER)]),
    "benchmarks.evaluate": each([], [(["--rows", "0"], NUMBER)]),
}
CASES = [
    *(
        (f"data.{builder}", Mistake(source, ["convert", *words, source, *OUT], expects=[source]))
        for builder, words in CONVERT.items()
        for source in SOURCES
    ),
    *((module, mistake) for module, mistakes in OTHERS.items() for mistake in mistakes),
]


@pytest.mark.parametrize(
    ("module", "mistake"), CASES, ids=[f"{module}: {mistake}".replace(SECRET, "SECRET") for module, mistake in CASES]
)
def test_a_mistake_is_one_paragraph(module: str, mistake: Mistake, assert_refused: AssertRefused) -> None:
    assert_refused(module, mistake)
