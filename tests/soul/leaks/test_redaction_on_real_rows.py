"""The leak guard on real rows: what careless critics say is withheld, what careful ones say is not.

Promise under test: every phrasing that points at the right option is caught in every row, so is a quotation of three
quarters of it that fits no other option, and fewer than one in a hundred neutral sentences lose a word.
"""

import math
import os
import random
import re
from collections import Counter

import pytest

from data.builder_cli import builder_of
from soul.leaks.redaction import WITHHELD, redact
from soul.one_turn import LetterTask
from soul.rows.task_files import read_rows
from tests.soul.leaks.leaking_critiques import LEAKS, NEUTRAL
from tests.soul.samples import DATA

# Of each task, drawn with a seed. SOUL_LEAK_ROWS=100000 tries all.
ROWS = int(os.environ.get("SOUL_LEAK_ROWS", "15"))
# Task -> builder, files, arguments.
SOURCES = {
    "hitom": ("hitom", ["Hi-ToM_data.json"], []),
    "fantom": ("fantom", ["*.csv"], []),
    "mistakes": ("mistakes", ["eedi_*.csv"], []),
    "twinvoice": ("twinvoice", ["*.jsonl"], []),
    "social_r1": ("social_r1", ["*.jsonl"], []),
    "lifechoices": ("lifechoices", ["*.json"], []),
    "alignx": ("alignx", ["*.json"], ["--set", "alignx"]),
}
each_task = pytest.mark.parametrize("name", SOURCES)


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory):
    """Task -> rows, built once."""
    built = {}

    def rows(name):
        builder, patterns, more = SOURCES[name]
        files = sorted(str(path) for pattern in patterns for path in (DATA / name).glob(pattern))
        if not files:
            pytest.skip(f"real records are absent: {DATA / name} (set SOUL_DATA_SOURCES to the folder that holds it)")
        if name not in built:
            out = str(tmp_path_factory.mktemp(name) / "rows.parquet")
            builder_of(builder).main(["convert", *files, *more, "--out", out])
            items = read_rows([out])
            built[name] = random.Random(name).sample(items, min(ROWS, len(items)))
        return built[name]

    return rows


def options_of(item):
    """The options and the right letter."""
    task, row = item.task, item.row
    if isinstance(task, LetterTask):
        return dict(task.options(row)), task.gold(row)
    options = dict(zip("ABCDEFGH", row.answer_choices, strict=False))
    return options, list(options)[int(row.correct_answer)]


def guarded(item, text):
    return redact(text, item.task.secrets(item.row), item.task.choices(item.row))[0]


@each_task
def test_no_phrasing_points_at_the_right_option(name, rows_of):
    passed = Counter()
    for item in rows_of(name):
        options, gold = options_of(item)
        other = next(letter for letter in options if letter != gold)
        for leak in LEAKS:
            text = guarded(item, leak.replace("{L}", gold).replace("{O}", other))
            assert WITHHELD in text, (leak, gold)
            passed[leak] += bool(re.search(rf"(?<![A-Za-z])({gold}|{other})(?![A-Za-z])", text))
    assert not +passed


def quotations(text):
    """Three quarters of the words in a row: from the start, the middle and the end."""
    words = text.split()
    size = math.ceil(0.75 * len(words))
    for start in {0, (len(words) - size) // 2, len(words) - size}:
        yield " ".join(words[start : start + size])


def plain(text):
    return " ".join(re.findall(r"\w+", text.casefold()))


@each_task
def test_no_quotation_of_most_of_an_option_passes(name, rows_of):
    tried = 0
    for item in rows_of(name):
        options, _ = options_of(item)
        for letter, option in options.items():
            rest = item.task.prompt(item.row)[-1]["content"].replace(option, "") + str(
                [text for other, text in options.items() if other != letter]
            )
            for quotation in quotations(option):
                # What the story or another option says too points at nothing.
                if plain(quotation) and f" {plain(quotation)} " not in f" {plain(rest)} ":
                    tried += 1
                    text = guarded(item, f'The words "{quotation}" say more than you saw.')
                    assert quotation.strip(" .") not in text and WITHHELD in text, (quotation, options)
    assert tried >= 20


@each_task
def test_neutral_sentences_stay_whole(name, rows_of):
    changed, count = Counter(), 0
    for item in rows_of(name):
        names = re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", item.task.prompt(item.row)[-1]["content"])
        often = Counter(names or ["Ann"]).most_common(1)[0][0]
        for sentence in NEUTRAL:
            text = sentence.replace("{N}", often)
            count += 1
            changed[sentence] += guarded(item, text) != text
    assert count == len(NEUTRAL) * len(rows_of(name))
    assert changed.total() / count < 0.01, changed.most_common(5)
