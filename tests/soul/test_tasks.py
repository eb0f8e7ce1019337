"""The tasks with a definite answer: what scores, what does not, and what the policy gets to see.

Every kind of question runs through the same tests (`samples.SAMPLES`), so a new task of this family is covered by
adding a sample. The real records at the end check that the row schemas fit the public sources.
"""

import pytest

from soul.task_types import Scored
from tests.soul.samples import (
    SAMPLES,
    episode_of,
    load,
    tagged,
    verdict_of,
)

each_kind = pytest.mark.parametrize("name", SAMPLES)


# --- the critique


@each_kind
def test_summarize_averages_what_each_verdict_reports(name):
    sample, item = load(name)
    answers = [tagged(sample.right[0]), tagged(sample.wrong[0])]
    scored = [Scored(episode_of(item, answer), verdict_of(item, answer)) for answer in answers]
    summary = item.task.summarize(scored)
    assert summary["accuracy"] == summary["reward"] == 0.5
    assert summary["answered"] <= 1.0
    assert item.task.summarize([]) == {}


# --- real records
