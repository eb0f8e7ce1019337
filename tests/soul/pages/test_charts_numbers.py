"""Numbers of the charts against the sessions themselves, by other formulas."""

import json
import re
import statistics
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import soul.pages
from soul.pages.export import indexed
from soul.pages.facts import described
from tests.soul.pages.charted_run import ADVICE, ALARM, ALARM_AT, STEPS, both, charted_run

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The sessions, and the run as the pages keep it."""
    folder = tmp_path_factory.mktemp("outputs") / "run"
    return charted_run(folder), indexed(folder)


def by_prompt(sessions, task, value):
    """The means over the prompts of steps, of sessions with both rewards."""
    groups = defaultdict(list)
    for one, gain in both(sessions, task):
        groups[one.step, one.prompt].append(value(gain))
    return [statistics.fmean(values) for values in groups.values()]


def test_the_sentence_says_what_the_sessions_say(run):
    sessions, training = run
    means = []
    for step in range(1, STEPS + 1):
        of_tasks = defaultdict(list)
        for one in sessions:
            if one.step == step and one.draft.reward is not None:
                of_tasks[one.task].append(one.draft.reward)
        means.append(statistics.fmean([value for values in of_tasks.values() for value in values]))
    said = training.overview(None)["verdict"]
    assert said.startswith(f"Drafts rose over {STEPS} steps: {sum(means[:2]) / 2:.3f} to {sum(means[-2:]) / 2:.3f} (")
    assert said.endswith(f"1 alarm: {ALARM} (step {ALARM_AT}).")


def test_shares_are_counts_by_step_and_task_with_an_interval_over_prompts(run):
    sessions, training = run
    curves = training.overview(None)["curves"]
    signs = {"better": lambda gain: gain > 0, "same": lambda gain: gain == 0, "worse": lambda gain: gain < 0}
    for task in ("hitom", "sotopia"):
        for place, step in enumerate(curves[task]["steps"]):
            gains = [gain for one, gain in both(sessions, task) if one.step == step]
            for name, test in signs.items():
                assert curves[task][name][place] == pytest.approx(sum(map(test, gains)) / len(gains))
        for name in ("better", "worse"):
            whole = statistics.fmean(signs[name](gain) for _, gain in both(sessions, task))
            found = curves[task]["shares"][name]
            means = by_prompt(sessions, task, signs[name])
            half = scipy.stats.t.ppf(0.975, len(means) - 1) * scipy.stats.sem(means)
            assert found["share"] == pytest.approx(whole)
            assert found["interval"] == pytest.approx((max(0, whole - half), min(1, whole + half)))
    assert curves["hitom"]["range"] == (0, 1) and curves["sotopia"]["range"] == pytest.approx((-3 / 7, 4 / 7))


def test_repeated_sentences_have_their_sessions(run):
    sessions, training = run
    expected = Counter(line for one, _ in both(sessions) for line in re.findall(r"[^.]+\.", one.feedback))
    expected = {line.strip(): 0 for line in expected}
    for one, _ in both(sessions):
        for line in expected:
            expected[line] += line in one.feedback
    found = training.themes()
    assert {one["text"]: len(one["ids"]) for one in found["sentences"]} == expected and len(expected) == len(ADVICE)
    assert found["read"] == len(both(sessions))
    columns = training.columns(0, None)["columns"]
    gains = dict(
        zip(
            columns["id"],
            np.subtract(np.array(columns["refined"], float), np.array(columns["draft"], float)),
            strict=True,
        )
    )
    for one in found["sentences"]:
        wanted = [gain for each, gain in both(sessions) if one["text"] in each.feedback]
        assert statistics.fmean(gains[id_] for id_ in one["ids"]) == pytest.approx(statistics.fmean(wanted), abs=1e-6)
    sessions_of = {id_: session for id_, session in zip(columns["id"], columns["session"], strict=True)}
    steps_of = dict(zip(columns["id"], columns["step"], strict=True))
    texts = {(one.step, one.session): one.feedback for one, _ in both(sessions)}
    for one in found["themes"]:
        first = one["text"].split(", ")[0]
        expected = {key for key, text in texts.items() if first in re.findall(r"\w+", text.lower())}
        assert {(steps_of[id_], sessions_of[id_]) for id_ in one["ids"]} == expected
    words = [one["text"].split(", ") for one in found["themes"]]
    assert ["early", "name"] in map(sorted, words), "two words of one sentence only are one theme"


def test_lengths_are_compared_within_prompts(run):
    sessions, training = run
    for task in ("hitom", "sotopia"):
        one = training.judge()["lengths"][task]["answer"]
        known = [each for each in sessions if each.task == task and each.draft.reward is not None]
        said = np.array([len(each.draft.seats["policy"][1]["content"]) for each in known], float)
        rewards = np.array([each.draft.reward for each in known])
        names = sorted({(each.step, each.prompt) for each in known})
        dummies = np.array([[float((each.step, each.prompt) == name) for name in names] for each in known])
        left = [values - dummies @ np.linalg.lstsq(dummies, values, rcond=None)[0] for values in (said, rewards)]
        expected = scipy.stats.pearsonr(*left).statistic
        half = scipy.stats.norm.ppf(0.975) / (len(known) - 3 - (len(names) - 1)) ** 0.5
        assert one["correlation"] == pytest.approx(expected, abs=1e-6)
        assert one["interval"] == pytest.approx(
            [np.tanh(np.arctanh(expected) + sign * half) for sign in (-1, 1)], abs=1e-5
        )
        assert (one["n"], one["groups"], sum(one["count"])) == (len(known), len(names), len(known))
        parts = [part for part in np.array_split(np.sort(said), len(one["length"])) if len(part)]
        assert one["length"][0] <= np.median(parts[0]) + 1 and one["length"] == sorted(one["length"])
        assert np.average(one["mean"], weights=one["count"]) == pytest.approx(rewards.mean(), abs=1e-6)
    told = training.judge()["lengths"]["sotopia"]["critique"]
    assert told["n"] == len(both(sessions, "sotopia"))


def test_each_version_of_a_prompt_has_its_own_mean(run):
    sessions, training = run
    expected = defaultdict(list)
    for one in sessions:
        if one.draft.reward is not None:
            expected[one.step, one.prompts[0]].append(one.draft.reward)
    found = {(one["step"], one["prompts"]): (one["n"], one["mean"]) for one in training.judge()["judges"]}
    assert found.keys() == expected.keys() and len({prompts for _, prompts in found}) == 4
    for key, rewards in expected.items():
        assert found[key] == (len(rewards), pytest.approx(statistics.fmean(rewards), abs=1e-6))


def test_metrics_mean_on_the_page_what_the_documentation_says():
    """metric_texts.json is made from the tables of docs/metrics.md; write it again if this fails."""
    tables = DOCS.read_text(encoding="utf-8").split("## Supervised")[0]
    plain = lambda text: re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "")  # noqa: E731
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+?) \|", tables, re.MULTILINE)
    expected = {name: plain(text) for names, text in rows for name in re.findall(r"`([^`]+)`", names)}
    file = Path(soul.pages.__file__).parent / "metric_texts.json"
    assert json.loads(file.read_text(encoding="utf-8")) == expected, f"write {file.name} again from docs/metrics.md"
    found = described(["judge/role/critic/calls", "ditto/gap", "val/hitom/n", "own/metric"])
    assert set(found) == {"judge/role/critic/calls", "ditto/gap", "val/hitom/n"}
    assert found["val/hitom/n"] == "Validation sessions of the task."
