"""Every number of the viewer is that of the files: bands, shares of an export, costs without a price, two runs.

Promise under test: recomputed here from the records themselves, with independent formulas.
"""

import statistics

import pytest
import scipy.stats

from ditto.run.run_folder import RunFolder
from soul.pages.export import indexed
from tests.soul.figures.made_up_runs import session


def run_of(folder, step, sessions):
    RunFolder(folder).write_traces("step", step, sessions)
    return indexed(folder)


def overview(training):
    return training.overview(None)


def groups(task, rewards, step=1):
    """Sessions of prompts; `rewards` has a list of (draft, refined) for each."""
    return [session(task, step, number, k, pair) for number, row in enumerate(rewards) for k, pair in enumerate(row)]


def test_bands_stay_in_the_range_and_use_few_prompts_as_few(tmp_path):
    """Rewards near 1 used to have a band beyond 1, and five prompts the factor 1.96."""
    rewards = [[(1.0, None), (0.9, None)], *[[(1.0, None), (1.0, None)]] * 4]
    curve = overview(run_of(tmp_path, 1, groups("hitom", rewards)))["curves"]["hitom"]["draft"]
    means = [statistics.fmean(draft for draft, _ in row) for row in rewards]
    low, _ = scipy.stats.ttest_1samp(means, 0).confidence_interval()
    assert (curve["low"][0], curve["high"][0]) == (pytest.approx(low), 1.0)
    few = overview(run_of(tmp_path / "few", 1, groups("hitom", rewards[:4])))["curves"]["hitom"]["draft"]
    assert few["low"] == few["high"] == [None]


def test_the_band_of_all_tasks_is_that_of_strata(tmp_path):
    scales = {"hitom": [0.1, 0.2, 0.3, 0.2, 0.1, 0.25], "sotopia": [0.91, 0.92, 0.93, 0.92, 0.91, 0.925]}
    sessions = [one for task, values in scales.items() for one in groups(task, [[(value, None)] for value in values])]
    curve = overview(run_of(tmp_path, 1, sessions))["curves"]["all"]["draft"]
    variances = [statistics.variance(values) / 6 for values in scales.values()]
    degrees = int(sum(variances) ** 2 / sum(v**2 / 5 for v in variances))
    half = scipy.stats.t.ppf(0.975, degrees) * sum(variances) ** 0.5 / 2
    assert curve["high"][0] - curve["mean"][0] == pytest.approx(half)
