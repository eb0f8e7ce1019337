"""The score of a set of UserLLM.

Promise under test: it is the mean of the paper's metrics, each over the rows that it concerns; silence earns nothing;
and no constant answer comes near what people themselves wrote.
"""

import json
import statistics

import pytest

from soul.evaluate.numbers.results import summarise
from soul.record import SessionRecord
from soul.session import Attempt
from soul.tasks.userllm import END
from soul.testing import scripted_players
from tests.soul.tasks.userllm_rows import CSQA, GOES_ON, NQ, OPENS, TASK, Fixed, episode_of, row_of, verdict_of


def of(*said, judge=None):
    """The numbers of a set in which these things were said: (record, text)."""
    samples = []
    for number, (record, text) in enumerate(said):
        row = row_of(record, index=number)
        verdict = verdict_of(row, text, judge or Fixed(0.5))
        draft = Attempt(scripted_players(text)(), episode_of(row, text), verdict).to_record()
        known = {"set": "userllm", "task": "userllm", "number": number, "row": number, "stamp": str(number)}
        samples.append(SessionRecord(**known, record=row.model_dump(mode="json"), draft=draft))
    return summarise(samples, ["userllm"]).sets["userllm"]


def test_the_score_is_the_mean_of_the_papers_six_metrics():
    bees, other = "do bees see red", "how do they find their way home in the dark"
    found = of(
        (CSQA, "why?"),
        (CSQA, "cave"),
        (NQ, "who built it?"),
        (OPENS, bees),
        (OPENS, other),
        (GOES_ON, f"can bees see red {END}"),
        (GOES_ON, "thanks"),
        judge=Fixed(0.4),
    )
    a, b = set(bees.split()), set(other.split())
    want = {
        "role_adherence": 0.5,
        "intent_adherence": 1.0,
        "intent_decomposition": statistics.fmean([1 - 1 / 3, 1 - 1 / 4, 1 - 1 / 3, 1]),
        "human_likeness": 0.4,
        "termination_f1": 2 / 3,
        "first_turn_diversity": 1 - len(a & b) / len(a | b),
    }
    assert found.joint.valid.parts == pytest.approx(want)
    assert found.mean == pytest.approx(statistics.fmean(want.values()))
    assert found.headline == TASK.set_headline and found.headline.name == "mean_of_metrics"
    assert found.interval[0] < found.mean < found.interval[1]
    saved = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert saved["mean_of"] == pytest.approx(want) and saved["metric"]["name"] == "mean_of_metrics"
    assert want.items() <= {key: pytest.approx(value) for key, value in found.metrics.items()}.items()


def test_metrics_without_rows_are_in_no_average():
    assert set(of((CSQA, "why?"), (CSQA, "cave")).joint.valid.parts) == {"role_adherence"}
    openings = of((OPENS, "do bees see red"), (OPENS, f"and blue {END}"))
    assert set(openings.joint.valid.parts) == {"intent_decomposition", "human_likeness", "first_turn_diversity"}
    assert "first_turn_diversity" not in of((OPENS, "do bees see red")).joint.valid.parts
    never_last = of(({**GOES_ON, "is_last_turn": False}, f"why {END}"))  # nothing to find: F1 would be 0 by force
    assert "termination_f1" not in never_last.joint.valid.parts


def test_a_right_end_alone_counts_for_termination_alone():
    last_opening = {**OPENS, "is_last_turn": True}
    parts = of((GOES_ON, END), (last_opening, END), (OPENS, "do bees see red"), (OPENS, "what of wasps")).joint.valid
    assert parts.parts == pytest.approx(
        {
            "termination_f1": 1.0,
            "intent_decomposition": (1 - 1 / 3 + 1) / 2,
            "human_likeness": 0.5,
            "first_turn_diversity": 1.0,
        }
    )
