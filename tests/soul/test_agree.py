"""Labels that authors published, read and compared: their own numbers come out, and each text reaches the judge.

The labels are not in this repository. Copies are in folders of `SOUL_LABELS` (default: labels/ in the folder of real
records) that are named after the tasks; `soul judge agree` says where they come from.
"""

import csv
import json
import math
import os
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from soul.agree import main
from soul.errors import JudgeFailure
from soul.judge.audit.agreement_statistics import spearman
from soul.judge.audit.human_agreement import Agreement
from soul.judge.call.http import read_completion
from soul.published_labels import SOURCES, sim_arena_doc
from soul.tasks.sotopia import RANGES
from soul.testing import FakeOpenAI, Json
from soul.testing.replies import Answer, Reply
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


@needs(MIRRORBENCH)
def test_mirrorbenchs_interval_comes_out_with_their_draws():
    labels = [label for label in SOURCES["mirrorbench"].read(MIRRORBENCH) if "gteval" in label.people]
    scores = np.array([[*label.people["gteval"], label.recorded["gteval"]] for label in labels])
    generator = np.random.RandomState(42)
    drawn = np.array([generator.choice(len(scores), size=len(scores), replace=True) for _ in range(10_000)])
    interval = np.percentile(spearman(*np.moveaxis(scores[drawn], -1, 0)), [2.5, 97.5])
    published = json.loads((MIRRORBENCH / "correlation_report.json").read_text())["results"][0]
    assert interval == pytest.approx([published["spearman_ci_lower"], published["spearman_ci_upper"]], rel=1e-14)


# The goal scores of people for the four trained models: in human_eval_plot.ipynb, `all_goal_dim` less `human_gap`.
HUMAN_GOAL = {"mistral-instruct": 3.25 - 0.36, "SR": 3.96 - 0.64, "BC": 4.82 - 1.27, "BC+SR": 5.71 - 1.42}


@needs(SOTOPIA)
def test_sotopia_pis_ratings_give_the_means_that_its_authors_plot():
    labels = {label.conversation_id: label for label in SOURCES["sotopia"].read(SOTOPIA)}
    assert len(labels) == 2 * 154 and sum(len(label.people["goal"]) for label in labels.values()) == 2 * 309
    models = {
        path.stem: json.loads(path.read_text())["models"] for path in SOTOPIA.rglob("sotopia_official_study/*/*.json")
    }
    for name, published in HUMAN_GOAL.items():
        with (SOTOPIA / f"{name}_final.csv").open(newline="", encoding="utf-8") as lines:
            keys = dict.fromkeys(line["pk"] for line in csv.DictReader(lines))
        own = [f"{key} agent{i}" for key in keys for i in (1, 2) if models[key][i] == "custom_model"]
        assert len(own) == 28
        assert round(fmean(fmean(labels[key].people["goal"]) for key in own), 2) == pytest.approx(published)


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


class FirstToken(Reply):
    """A completion of one token, with the candidates for it."""

    def __init__(self, candidates):
        self.candidates = candidates

    def answer(self, request):
        assert (request.body["top_logprobs"], request.body["max_completion_tokens"]) == (20, 1)
        assert request.body["logprobs"] is True and "response_format" not in request.body
        listed = [{"token": token, "logprob": math.log(share)} for token, share in self.candidates.items()]
        message = {"role": "assistant", "content": "?"}
        choice = {"message": message, "finish_reason": "length", "logprobs": {"content": [{"top_logprobs": listed}]}}
        return Answer(body=json.dumps({"choices": [choice], "usage": {}}).encode())


def test_expected_scores_stand_beside_the_sampled_ones_and_need_enough_mass(ratings, tmp_path, few_resamples):
    def verdict(request):
        if "ping" in request.data:
            return Json({"ready": True})
        if "logprobs" not in request.body:
            scores = {name: {"reasoning": "r", "score": 0} for name in RANGES}
            return Json({**scores, "critique": "c"})
        dimension = next(name for name in RANGES if f"Decide only on {name}.score" in request.text)
        if dimension == "secret" and request.data["person_to_be_judged"] == "Leo Williams":
            return FirstToken({"K": 0.4, "The": 0.5})
        if dimension == "goal" and request.data["person_to_be_judged"] == "Mia Davis":
            assert "A = 0, B = 1, " in request.text and "K = 10." in request.text
            return FirstToken({"I": 0.6, " J": 0.2, "i": 0.1, "Goal": 0.1})  # 8 and 9
        return FirstToken({"F" if RANGES[dimension][0] == -5 else "A" if RANGES[dimension][0] == 0 else "K": 1.0})

    with FakeOpenAI(verdict) as fake:
        words = [f"judge.base_url={fake.url}", "judge.api_key_env=none", "--labels", ratings, "--repeats", "2"]
        found = compared(tmp_path, "sotopia", *words, "--expected")
        assert len(fake.requests) == 1 + 2 * 2 + 2 * len(RANGES)  # a repeat would give the same
    sampled, expected = found["goal"], found["goal, expected"]
    assert (sampled.n, sampled.judge_mean, sampled.measures["absolute_error"].value) == (2, 0, 5)
    assert (expected.n, expected.left_out, expected.failures) == (1, 1, {"invalid": 1})
    assert expected.judge_mean == pytest.approx(8.25)
    assert found["overall, expected"].judge_mean == pytest.approx(8.25 / 70)


def test_an_endpoint_without_log_probabilities_is_a_failure_and_no_score(ratings, tmp_path, few_resamples):
    scores = {name: {"reasoning": "r", "score": 0} for name in RANGES}
    reply = Json({**scores, "critique": "c", "ready": True})
    with FakeOpenAI(lambda request: Json({"ready": True}) if "ping" in request.data else reply) as fake:
        where = f"judge.base_url={fake.url}", "judge.api_key_env=none"
        assert (
            main(["sotopia", *where, "--labels", str(ratings), "--expected", "--json", str(tmp_path / "f.json")]) == 1
        )
    found = Agreement.from_json((tmp_path / "f.json").read_bytes()).metrics["goal, expected"]
    assert (found.n, found.failures) == (0, {"invalid": 2})


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


def test_labels_of_your_own_are_asked_about_without_a_task(tmp_path, capsys, few_resamples):
    turns = [{"role": "user", "content": "hi there"}, {"role": "assistant", "content": "Hello."}]
    simulated = [[{"role": "user", "content": f"hey {n}"}] for n in range(4)]
    records = [
        {"conversation_id": n, "real": turns, "simulated": said, "human_score": n / 4, "judge_score": 0.5}
        for n, said in enumerate(simulated)
    ]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, records)))

    def by_number(request):
        if "ping" in request.data:
            return Json({"ready": True})
        return Json({"reasoning": "r", "score": next(n for n in range(4) if f"hey {n}" in request.text) / 4})

    with FakeOpenAI(by_number) as fake:
        words = [f"judge.base_url={fake.url}", "judge.api_key_env=none", "--labels", tmp_path / "labels.jsonl"]
        assert compared(tmp_path, *words)["gteval"].measures["pearson"].value == pytest.approx(1)
        assert "What the judges cost" in capsys.readouterr().out
        asked = len(fake.requests)
        assert compared(tmp_path, *words, "--recorded")["gteval"].judge_mean == 0.5
        assert len(fake.requests) == asked


def test_where_labels_come_from_is_said(tmp_path, capsys):
    for words, told in {
        (): "sotopia-lab/sotopia-pi at c8163ac, folder human_eval (Apache-2.0)",
        ("coser",): "no published labels for 'coser'",
        ("sotopia", "--labels", str(tmp_path)): f"{tmp_path}: ",
        ("mirrorbench", "--labels", str(tmp_path)): "gteval_judge_scores.json",
    }.items():
        assert main(list(words)) == 2
        assert told in capsys.readouterr().err


@pytest.mark.parametrize("number", ["NaN", "1e9", "true", '"-1"', "null"])
def test_a_log_probability_that_cannot_be_one_is_a_failure(number):
    body = '{"choices": [{"message": {}, "logprobs": {"content": [{"top_logprobs": [%s, %s]}]}}]}'
    good, bad = (f'{{"token": "{token}", "logprob": {value}}}' for token, value in (("A", -0.1), ("B", number)))
    assert json.loads(read_completion((body % (good, good)).encode()).first_token()) == {"A": -0.1}
    with pytest.raises(JudgeFailure, match="invalid.*log-probabilities"):
        read_completion((body % (good, bad)).encode()).first_token()
