"""Labels that authors published, read and compared: their own numbers come out, and each text reaches the judge.

The labels are not in this repository. Copies are in folders of `SOUL_LABELS` (default: labels/ in the folder of real
records) that are named after the tasks; `soul judge agree` says where they come from.
"""

import csv
import json
import os
from pathlib import Path

import pytest

from soul.agree import main
from soul.judge.audit.human_agreement import Agreement
from soul.published_labels import SOURCES, sim_arena_doc
from soul.tasks.sotopia import RANGES
from soul.testing import FakeOpenAI, Json
from tests.data.source_files import needs, write_json
from tests.soul.samples import DATA

COPIES = Path(os.environ.get("SOUL_LABELS") or DATA / "labels")
MIRRORBENCH, SOTOPIA = COPIES / "mirrorbench", COPIES / "sotopia"


@pytest.fixture
def few_resamples(monkeypatch):
    monkeypatch.setattr("soul.judge.audit.agreement_statistics.RESAMPLES", 20)


def compared(tmp_path, *words):
    assert main([*map(str, words), "--json", str(tmp_path / "found.json")]) == 0
    return Agreement.from_json((tmp_path / "found.json").read_bytes()).metrics


@needs(MIRRORBENCH)
def test_mirrorbenchs_own_report_comes_out_to_15_digits(tmp_path, few_resamples):
    found = compared(tmp_path, "mirrorbench", "--labels", MIRRORBENCH, "--recorded")
    for published in json.loads((MIRRORBENCH / "correlation_report.json").read_text())["results"]:
        ours = found[{"gteval": "gteval", "pi_pairwise": "pairwise"}[published["metric_name"].rpartition("/")[2]]]
        numbers = {
            "num_samples": ours.n,
            "human_mean": ours.human_mean,
            "human_std": ours.human_sd,
            "judge_mean": ours.judge_mean,
            "judge_std": ours.judge_sd,
            "spearman_rho": ours.measures["spearman"].value,
            "pearson_r": ours.measures["pearson"].value,
            "kendall_tau": ours.measures["kendall"].value,
        }
        assert numbers == pytest.approx({name: published[name] for name in numbers}, rel=1e-14)


@needs(SOTOPIA)
def test_people_agree_in_sotopia_pi_as_an_independent_computation_says(tmp_path, few_resamples):
    pandas = pytest.importorskip("pandas")
    lines = pandas.concat([pandas.read_csv(path) for path in SOTOPIA.glob("*_final.csv")])
    found = compared(tmp_path, "sotopia", "--labels", SOTOPIA, "--recorded")
    for name in RANGES:
        sides = [lines[["pk", f"{name}_{n}"]].set_axis(["pk", "score"], axis=1).assign(side=n) for n in (1, 2)]
        units = pandas.concat(sides).groupby(["pk", "side"])["score"]
        # Alpha from analysis of variance: within and total mean squares, each unit weighted by its ratings.
        observed = (units.var(ddof=1) * units.size()).sum() / units.size().sum()
        assert found[name].human_alpha == pytest.approx(1 - observed / pandas.concat(sides)["score"].var(ddof=1))
        assert found[name].n == 0 and not found[name].measures and found[name].people["alpha"].n == 308
    whole = lines[[f"{name}_{n}" for n in (1, 2) for name in RANGES]].to_numpy()
    assert found["overall"].human_mean == pytest.approx(whole.mean() / 10, abs=0.002)  # one dialogue has three ratings
    assert found["goal"].human_alpha > 0.7 and found["knowledge"].human_alpha < 0  # what no judge can be held to


PROMPT = """\
Here is the context of this interaction:
Scenario: Two friends share a tent
Participants: Mia Davis and Leo Williams
Mia Davis's background: Mia Davis is a chef. Mia's secrets: She cannot cook.
Leo Williams's background: Leo Williams is a pilot. Leo's secrets: He fears heights.
Mia Davis's goal: Get the blanket (Extra information: you are cold)
Leo Williams's goal: Keep the blanket
Turn #0: Mia Davis said: "Give me the blanket, please.
I am cold."
Turn #1: Leo Williams [action] holds it tight
Turn #2: Mia Davis [non-verbal communication] shivers
Turn #3,
Turn #4
Mia Davis left the conversation,"""


@pytest.fixture
def ratings(tmp_path):
    """A folder as sotopia-pi's human_eval: two people's ratings of one dialogue."""
    write_json(tmp_path / "labels/otree_project/sotopia_official_study/X/K1.json", {"rewards_prompt": PROMPT})
    lines = []
    for rater, goals in (("5b9e", (7, 2)), ("61aa", (9, 2))):
        line = {"pk": "K1", "prolific_id": rater}
        for n, goal in enumerate(goals, 1):
            line |= {f"{name}_{n}": goal if name == "goal" else 0 for name in RANGES}
            line |= {f"{name}_reasoning_{n}": f"{name} of {n}" for name in RANGES}
        lines.append(line)
    with (tmp_path / "labels/X_final.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return tmp_path / "labels"


def test_the_tasks_own_prompt_is_asked_about_each_person(ratings, tmp_path, few_resamples):
    asked = []

    def verdict(request):
        if "ping" in request.data:
            return Json({"ready": True})
        asked.append(request)
        goal = 8 if request.data["person_to_be_judged"] == "Mia Davis" else 3
        scores = {name: {"reasoning": "r", "score": goal if name == "goal" else 0} for name in RANGES}
        return Json({**scores, "critique": "c"})

    with FakeOpenAI(verdict) as fake:
        where = f"judge.base_url={fake.url}", "judge.api_key_env=none"
        found = compared(tmp_path, "sotopia", *where, "--labels", ratings, "--repeats", "2")
    mia = next(one for one in asked if one.data["person_to_be_judged"] == "Mia Davis")
    assert "There are seven dimensions" in mia.text and len(asked) == 4  # two people, two repeats each
    assert mia.data["known_to_that_person"]["secret"] == "She cannot cook."
    assert mia.data["hidden_from_that_person"]["the_other"]["goal"] == "Keep the blanket"
    assert [(turn["by"], turn["kind"], turn["text"]) for turn in mia.data["transcript"]] == [
        ("Mia Davis", "speak", "Give me the blanket, please.\nI am cold."),
        ("Leo Williams", "action", "holds it tight"),
        ("Mia Davis", "non-verbal communication", "shivers"),
        ("Leo Williams", "none", ""),
        ("Mia Davis", "leave", ""),
    ]
    assert "5b9e" not in mia.text and "goal of 1" not in mia.text  # nothing that people said
    goal = found["goal"]
    assert (goal.n, goal.judge_mean, goal.human_mean, goal.judge_alpha) == (2, 5.5, 5, 1)
    assert goal.measures["absolute_error"].value == 0.5 and goal.floor["absolute_error"] == 3  # 8 and 3; 8 and 2
    (label, other) = SOURCES["sotopia"].read(ratings)
    assert label.reasons["goal"] == ["goal of 1"] * 2 and other.people["goal"] == [2, 2]


@needs(DATA / "sim_doc")
def test_the_judge_rates_the_document_that_its_person_rated():
    label, *_ = labels = sim_arena_doc(DATA / "sim_doc")
    raw = json.loads((DATA / "sim_doc" / "document_creation_annotations_for_benchmarking.json").read_text())
    known = [[raw[int(one.conversation_id)]["overall_document_rating"]] for one in labels]
    assert [one.people["document_rating"] for one in labels] == known and len(labels) == len(
        raw
    ) - 1  # one has no wishes
    said = [turn["text"] for turn in label.task._conversation(label.episode) if turn["by"] == "person"]
    assert said == [text.strip() for text in raw[0]["user_queries"]]
    assert label.episode.seats["policy"][-1]["content"] == raw[0]["document_history"][-1]
    assert label.task.preferences(label.row) and raw[0]["workerId"] not in repr(label)
