"""Which reader is in use is an option of every task with a definite answer, and both readings are metrics."""

import pytest

from soul import tasks
from tests.soul.samples import SAMPLES as TOM
from tests.soul.samples import verdict_of
from tests.soul.tasks.one_turn_samples import SAMPLES as OTHERS

RECORDS = TOM | OTHERS
# Words are found in their dress by both readers.
SAME = {"paratomi", "fantom_list", "fantom_binary", "fantom_fact"}


@pytest.fixture
def unconfigured():
    yield
    tasks.configure({})


@pytest.mark.parametrize("name", RECORDS)
def test_the_option_chooses_the_reader_and_both_readings_are_metrics(name, unconfigured):
    task, dressed = RECORDS[name].task, f"<answer>**{RECORDS[name].right[0]}**</answer>"

    def verdict():
        return verdict_of(RECORDS[name].item, dressed)

    strictly = float(name in SAME)
    metrics = verdict().metrics
    assert (verdict().reward, metrics["answered"], metrics["answered_strict"]) == (1.0, 1.0, strictly)
    assert metrics.get("accuracy_strict", strictly) == strictly
    tasks.configure({task: {"strict_answers": True}})
    metrics = verdict().metrics
    assert (verdict().reward, metrics["answered"], metrics["answered_strict"]) == (strictly, strictly, strictly)
