"""Any number of runs with seeds, across and within.

Promise under test: every number of the JSON is that of the files, recomputed here with numpy alone; runs that differ in
their seed only are one side; stars are adjusted for many comparisons; both texts of a row are those that were compared.
"""

import importlib.util
import json
from collections import defaultdict

import numpy as np
import pytest
import scipy.stats

from ditto.run.run_folder import RunFolder
from soul.compare.command import main
from soul.compare.runs import NoSides, compare_runs, pair_texts
from soul.compare.trainings import means_from_index
from soul.metrics.intervals import LEVEL, difference_of, holm, p_of_pairs
from tests.soul.compare.test_compare import by_rule, run_folder
from tests.soul.evaluate.finished_samples import TOM
from tests.soul.figures.made_up_runs import session, training

SETS = (TOM, "paratomi")
GRID = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def evaluations(folder, name, gain, seeds=(1, 2)):
    """An evaluation for each seed: 40 rows of two sets."""
    dice = np.random.default_rng([len(name), int(100 * gain)])
    for seed in seeds:
        rewards = {
            of: dice.choice(GRID, 40, p=np.array([1, 1, 1, 1 + 9 * gain, 1 + 18 * gain]) / (5 + 27 * gain))
            for of in SETS
        }
        lines = [line for of in SETS for line in by_rule(rewards[of].tolist(), of)]
        yield run_folder(folder / f"{name}-{seed}", lines, policy={"model": name, "seed": seed})


def rewards_of(folders):
    """Set -> row -> seed, from the journals."""
    found = {of: np.full((40, len(folders)), np.nan) for of in SETS}
    for place, folder in enumerate(folders):
        for line in map(json.loads, (folder / "samples.jsonl").read_text().splitlines()):
            found[line["set"]][line["number"], place] = line["draft"]["reward"]
    return found


def test_three_models_with_two_seeds_each_are_compared_as_numpy_does(tmp_path, capsys):
    base, other, third = (
        list(evaluations(tmp_path, name, gain)) for name, gain in (("base", 0.0), ("other", 0.5), ("third", 0.02))
    )
    assert main([*map(str, [*base, *other, *third]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["compared"]["label"] for one in found["comparisons"]] == ["other", "third"]
    for comparison, folders in zip(found["comparisons"], (other, third), strict=True):
        assert comparison["compared"]["folders"] == [str(folder) for folder in folders]
        sets = {one["name"]: one for one in comparison["sets"]}
        assert [one["effect"] for one in comparison["sets"]] == sorted(
            (s["effect"] for s in sets.values()), reverse=True
        )
        left, right = rewards_of(base), rewards_of(folders)
        means, variances = [], []
        for name, one in sets.items():
            difference = right[name].mean(axis=1) - left[name].mean(axis=1)
            error = difference.std(ddof=1) / np.sqrt(40)
            half = scipy.stats.t.ppf(0.975, 39) * error
            assert one["rows"] == 40 and one["difference"] == pytest.approx(difference.mean())
            assert one["interval"] == pytest.approx([difference.mean() - half, difference.mean() + half])
            assert one["p_value"] == pytest.approx(scipy.stats.ttest_1samp(difference, 0).pvalue)
            assert one["seeds"] == [pytest.approx(each[name].mean(axis=0).tolist()) for each in (left, right)]
            means.append(difference.mean())
            variances.append(error**2)
        low, high = sorted(sets.values(), key=lambda one: one["p_value"])
        assert low["p_adjusted"] == pytest.approx(min(1, 2 * low["p_value"]))
        assert high["p_adjusted"] == pytest.approx(max(high["p_value"], low["p_adjusted"]))
        assert all(one["star"] is (one["p_adjusted"] < 0.05) for one in sets.values())
        headline, error = comparison["headline"], np.sqrt(sum(variances)) / 2
        degrees = int(sum(variances) ** 2 / sum(v**2 / 39 for v in variances))
        assert headline["difference"] == pytest.approx(np.mean(means))
        assert headline["p_value"] == pytest.approx(2 * scipy.stats.t.sf(abs(np.mean(means)) / error, degrees))
    assert found["comparisons"][0]["headline"]["star"] and not found["comparisons"][1]["headline"]["star"]
    explicit = compare_runs(base, [other, third]).to_json()
    assert json.loads(json.dumps(explicit)) == found  # --against says the same


def test_equal_settings_with_equal_seeds_are_two_sides(tmp_path):
    """The same settings in two folders: the model behind the address may have changed."""
    a, b = (run_folder(tmp_path / name, by_rule([0.0, 1.0]), "m") for name in "ab")
    (one,) = compare_runs([a, b]).comparisons
    assert one.labels == ("a", "b")
    with pytest.raises(NoSides, match="only one side"):
        compare_runs(list(evaluations(tmp_path, "m", 0.0)))


def test_the_adjustment_is_holms():
    """Worked by hand: the sorted p-values 4, 3, 2 and 1 times, and never less than the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, None, 0.9]) == pytest.approx([1.0, None, 1.0])


@pytest.mark.parametrize(("graded", "most"), [(0, 10), (9, 10), (27, 20)])
def test_equal_models_get_a_star_in_one_of_twenty_comparisons_at_most(graded, most):
    """27 sets of the same distribution, 200 times; so many of them are graded, the others right or wrong.

    The sign test of right or wrong is exact, and so below its level. Student's t of 27 graded sets is at its level
    (5.3 % in 20,000 simulations): by chance alone, 20 of 200 have a star in one of a thousand such tests.
    """
    dice = np.random.default_rng(0)
    starred = 0
    for _ in range(200):
        ps = []
        for place in range(27):
            pairs = dice.random((40, 2)) if place < graded else dice.integers(0, 2, (40, 2)).astype(float)
            rows = [(one, two) for one, two in pairs.tolist()]
            ps.append(p_of_pairs([two - one for one, two in rows], difference_of(rows, (0.0, 1.0))))
        starred += any(p is not None and p < LEVEL for p in holm(ps))
    assert starred <= most


# ---- training runs


def trained(folder, gain):
    return training(folder, 1, steps=6, gain=gain, tasks=("sotopia",), repeated_rows=12)


def from_index(folder):
    pages = importlib.import_module("soul.pages.index")
    index = pages.SessionIndex(folder / "traces")
    index.refresh()
    return index.read(means_from_index)


def sessions_of(folder):
    for file in sorted((folder / "traces").glob("step_*.jsonl")):
        yield from map(json.loads, file.read_text().splitlines())


def test_training_runs_are_compared_by_their_prompts(tmp_path, capsys, monkeypatch):
    base, other = trained(tmp_path / "base", 0.02), trained(tmp_path / "other", 0.06)
    groups = defaultdict(lambda: ([], []))
    for place, folder in enumerate((base, other)):
        for one in sessions_of(folder):
            groups[one["number"], one["step"]][place].append(one["draft"]["reward"])
    by_prompt = defaultdict(list)
    for (number, _), (left, right) in groups.items():
        by_prompt[number].append((np.mean(left), np.mean(right)))
    differences = [np.mean([b - a for a, b in pairs]) for pairs in by_prompt.values()]
    (found,) = compare_runs([base, other]).comparisons
    one = found.sets["sotopia"]
    expected = scipy.stats.ttest_1samp(differences, 0)
    assert len(one.rows) == 12 and one.estimate.mean == pytest.approx(np.mean(differences))
    assert one.estimate.interval == pytest.approx(tuple(expected.confidence_interval()))
    assert one.p_value == pytest.approx(expected.pvalue)
    assert found.macro.difference == one.estimate.mean and set(found.sets) == {"sotopia", "sotopia, refined"}
    widest = max(one.rows, key=lambda row: row.other - row.base)
    texts = pair_texts(found, "sotopia", widest.id)
    _, step, number, _ = widest.id.split(" ")
    for side, place, pick in zip(texts["sides"], (0, 1), (min, max), strict=True):
        assert side["attempt"]["reward"] == pick(groups[int(number), int(step)][place])
    (indexed,) = compare_runs([base, other], groups_of=from_index).comparisons
    assert indexed.sets["sotopia"].estimate.mean == pytest.approx(one.estimate.mean, abs=1e-6)
    monkeypatch.setenv("COLUMNS", "160")
    assert main([str(base), "--against", str(other)]) == 0
    assert "other: macro average, 1 set" in capsys.readouterr().out


@pytest.mark.parametrize("task", ["hitom", "of_a_plug_in_that_is_not_installed"])
def test_refined_answers_are_compared_with_the_drafts_of_the_same_sessions(tmp_path, task):
    rewards = [[(0.1, 0.5), (0.3, None)], [(0.2, 0.1), (0.4, 0.8)], *[[(0.5, 0.5 + k / 10)] for k in range(4)]]
    made = [session(task, 1, row, k, pair) for row, pairs in enumerate(rewards) for k, pair in enumerate(pairs)]
    RunFolder(tmp_path / "run").write_traces("step", 1, made)
    table = compare_runs([tmp_path / "run"], within=True)
    (found,) = table.comparisons
    one = found.sets[task]
    assert found.labels == ("run: draft", "run: refined")
    differences = [0.4, np.mean([-0.1, 0.4]), 0.0, 0.1, 0.2, 0.3]
    assert [row.other - row.base for row in one.rows] == pytest.approx(differences)
    assert one.p_value == pytest.approx(scipy.stats.ttest_1samp(differences, 0).pvalue)
    draft, refined = pair_texts(found, task, one.rows[1].id)["sides"]
    assert (draft["attempt"]["reward"], refined["attempt"]["reward"]) == (0.4, 0.8)
    json.dumps(table.to_json(), allow_nan=False)


def test_seeds_of_a_training_are_found_by_its_settings(tmp_path):
    folders = []
    for objective, gain in (("grpo", 0.01), ("ditto", 0.05)):
        for seed in (1, 2):
            folder = training(tmp_path / f"{objective}-{seed}", seed, steps=6, gain=gain)
            config = {"run": {"dir": str(folder)}, "data": {"seed": seed}, "algorithm": {"objective": objective}}
            (folder / "run.json").write_text(json.dumps({"seed": seed, "config": config}))
            folders.append(folder)
    (found,) = compare_runs(folders).comparisons
    assert [list(side.folders) for side in (found.base, found.other)] == [folders[:2], folders[2:]]
    assert all(len(scores) == 2 for scores in found.sets["sotopia"].seeds)
