"""Labels of people: what they are shown, what is kept, and the numbers of `soul judge agree`."""

import json
from collections import Counter
from statistics import fmean
from urllib.parse import quote

import pytest

from soul.annotate import Annotation
from soul.cli.main import main
from soul.errors import BadSettings
from soul.pages.extensions import annotate
from soul.record import read_records
from soul.testing import FakeOpenAI, Json, Text
from tests.soul.compare.test_compare import by_rule, run_folder
from tests.soul.evaluate.finished_samples import TOM
from tests.soul.pages.invented_run import training
from tests.soul.pages.served import served

PEOPLE = ("Ann B.", "zo\u00eb_2")


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr("soul.judge.audit.agreement_statistics.RESAMPLES", 50)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return training(tmp_path_factory.mktemp("runs") / "run", steps=2)


def pairs_of(run, folder, count=12, seed=3):
    words = ["judge", "draw", str(run), "--pairs", "draft-refined", "--count", str(count), "--seed", str(seed)]
    assert not main([*words, "--out", str(folder)])
    return Annotation(folder)


def text_of(turns):
    return " ".join(turn["content"] for turn in turns if turn["role"] == "user")


def sessions_by_text(run):
    """Reward and side of every attempt, by the text of its busiest seat."""
    found = {}
    for file in (run / "traces").glob("step_*"):
        for line in read_records(file):
            for side, attempt in zip(("draft", "refined"), line.record.attempts, strict=False):
                said = max(attempt.seats.values(), key=len)
                text = " ".join(turn["content"] for turn in said if turn["role"] == "assistant")
                found.setdefault((line.record.task, text), set()).add((side, attempt.reward))
    return found


def test_a_person_sees_two_texts_and_nothing_that_tells_them_apart(run, tmp_path):
    made = pairs_of(run, tmp_path / "a")
    again = pairs_of(run, tmp_path / "b")
    assert made.items == again.items and len(made.items) == 12
    places: Counter[int] = Counter()
    orders = []
    for person in PEOPLE:
        order = []
        while shown := made.next(person):
            assert shown.keys() == {"item", "task", "context", "dimensions", "texts", "label"}
            assert shown == again.next(person)  # from the seed alone
            item, sent = made.items[shown["item"]], json.dumps(shown)
            assert not any(word in sent for word in ("draft", "refined", "reward", "judge", "reviewer says", str(run)))
            # The same keys and roles on both sides: only the words differ.
            shapes = [[sorted(turn) for turn in text] for text in shown["texts"]]
            assert {key for shape in shapes for turn in shape for key in map(str, turn)} == {"role", "content"}
            assert sorted(map(text_of, shown["texts"])) == sorted(map(text_of, item.texts))
            places[shown["texts"].index(item.texts[1])] += 1
            order.append(shown["item"])
            for one in (made, again):
                one.label(person, shown["item"], "tie")
        orders.append(order)
    assert min(places.values()) >= 6 and sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]
    assert made.progress() == {"kind": "draft-refined", "items": 12, "people": dict.fromkeys(PEOPLE, 12)}


def test_labels_outlive_a_kill_and_the_last_one_counts(run, tmp_path):
    made = pairs_of(run, tmp_path / "a")
    first = made.next(PEOPLE[0])["item"]
    made.label(PEOPLE[0], first, "A")
    made.label(PEOPLE[1], first, "B")
    with (tmp_path / "a" / "labels.jsonl").open("a") as file:
        file.write('{"item": 3, "person": "Ann B.", "cho')
    made = Annotation(tmp_path / "a")
    assert made.progress()["people"] == dict.fromkeys(PEOPLE, 1) and made.next(PEOPLE[0])["item"] != first
    made.label(PEOPLE[0], first, "B")
    assert made.shown(PEOPLE[0], first)["label"] == "B" == made.shown(PEOPLE[1], first)["label"]
    lines = [json.loads(line) for line in (tmp_path / "a" / "labels.jsonl").read_text().splitlines()]
    assert [line["person"] for line in lines] == [PEOPLE[0], PEOPLE[1], PEOPLE[0]]
    for name in ("", "a" * 41, "<b>", "../x", " a", "a\n"):
        with pytest.raises(BadSettings, match="a name has"):
            made.next(name)
    for item, value in ((first, "C"), (first, {"goal": 1}), (99, "A")):
        with pytest.raises(BadSettings, match=f"item {item}"):
            made.label(PEOPLE[0], item, value)
    with pytest.raises(BadSettings, match="already"):
        Annotation.create(tmp_path / "a", [run], "ratings", 3)


def test_pairs_agree_with_rewards_and_judges_as_counted_by_hand(run, tmp_path, capsys):
    """The first person takes the longer text; the second takes what is shown first."""
    made = pairs_of(run, tmp_path / "a", count=30)
    taken = {person: {} for person in PEOPLE}
    for person in PEOPLE:
        while shown := made.next(person):
            lengths = [len(text_of(text)) for text in shown["texts"]]
            choice = "A" if person == PEOPLE[1] or lengths[0] > lengths[1] else "B"
            made.label(person, shown["item"], choice)
            taken[person][shown["item"]] = text_of(shown["texts"]["AB".index(choice)])
    known, wins, majority = sessions_by_text(run), [], []
    for item in made.items.values():
        draft, refined = map(text_of, item.texts)
        assert ("draft", item.judge[0]) in known[item.task, draft]
        assert ("refined", item.judge[1]) in known[item.task, refined]
        votes = [taken[person][item.id] == refined for person in PEOPLE]
        wins.append(fmean(votes))
        majority.append("refined" if all(votes) else "tie" if any(votes) else "draft")
    rewarded = [
        "tie" if one.judge[0] == one.judge[1] else "refined" if one.judge[1] > one.judge[0] else "draft"
        for one in made.items.values()
    ]
    found = made.agreement()["metrics"]["pairwise"]
    assert found["n"] == 30 and found["human_mean"] == pytest.approx(fmean(wins))
    right = fmean(one == other for one, other in zip(majority, rewarded, strict=True))
    assert found["measures"]["accuracy"]["value"] == pytest.approx(right)
    counts = Counter(majority), Counter(rewarded)
    chance = sum(counts[0][name] * counts[1][name] for name in ("draft", "tie", "refined")) / 30**2
    assert found["measures"]["kappa"]["value"] == pytest.approx((right - chance) / (1 - chance))

    def longer(request):
        if "ping" in request.data:
            return Json({"ready": True}) if "response_format" in request.body else Text("ready")
        data = json.JSONDecoder().raw_decode(request.messages[1]["content"], request.messages[1]["content"].index("{"))[
            0
        ]
        return Json({"reasoning": "?", "human": max("AB", key=lambda side: len(text_of(data[side])))})

    labels, report = tmp_path / "labels.jsonl", tmp_path / "agreement.json"
    export = ["judge", "draw", str(tmp_path / "a"), "--export", str(labels)]
    with pytest.raises(SystemExit, match="2"):  # nothing is rated here
        main([*export, "--dimensions", "goal"])
    assert not main(export)
    with FakeOpenAI(longer) as fake:
        url = f"judge.base_url={fake.url}"
        words = ["judge.api_key_env=none", "--labels", str(labels), "--json", str(report)]
        assert main(["judge", "agree", url, *words]) == 0
    asked = json.loads(report.read_text())["metrics"]["pairwise"]
    # The judge takes the longer text, as the first person does; a tie of the two is a miss.
    assert asked["n"] == 30 and asked["measures"]["accuracy"]["value"] == pytest.approx(
        fmean(one != "tie" for one in majority)
    )
    assert asked["human_alpha"] == found["human_alpha"] and asked["human_mean"] == found["human_mean"]


def labelled_over_http(client, person, item, value):
    body = json.dumps({"person": person, "item": item, "value": value})
    headers = {"Origin": client.server.address.rsplit("/", 2)[0], "Content_Type": "application/json"}
    return client.answer("/api/annotate/label", "POST", body, **headers)


def test_ratings_given_to_the_page_reach_the_command_with_the_judges_scores(run, tmp_path, capsys):
    words = ["judge", "draw", str(run), "--ratings", "--dimensions", "goal", "--count", "20"]
    assert not main([*words, "--out", str(tmp_path / "a")])
    made = Annotation(tmp_path / "a")
    given: dict[int, list[float]] = {}
    with served(tmp_path, annotate=annotate(Annotation(tmp_path / "a"))) as client:
        for person in PEOPLE:
            while shown := client.json(f"/api/annotate/about?person={quote(person)}")["next"]:
                assert shown["dimensions"] == {"goal": [0, 10]}
                assert shown["task"] == "sotopia" and len(shown["texts"]) == 1 and "judge" not in json.dumps(shown)
                rating = min(10.0, round(made.items[shown["item"]].judge["goal"]) + (person == PEOPLE[1]))
                assert labelled_over_http(client, person, shown["item"], {"goal": rating})[0] == 200
                given.setdefault(shown["item"], []).append(rating)
                if len(given) == 15 and person == PEOPLE[0]:
                    break
        for bad in (11, -1, True, "7", float("nan")):
            assert labelled_over_http(client, PEOPLE[0], 1, {"goal": bad})[0] in (400, 422)
    live = made.agreement()["metrics"]["goal"]
    labels, report = tmp_path / "labels.jsonl", tmp_path / "agreement.json"
    assert not main(["judge", "draw", str(tmp_path / "a"), "--export", str(labels)])
    with FakeOpenAI(Text("?")) as fake:  # nobody is asked
        where = [f"judge.base_url={fake.url}", "judge.api_key_env=none"]
        assert main(["judge", "agree", *where, "--labels", str(labels), "--json", str(report)]) == 0
        assert not fake.requests
    assert "goal: 20 texts" in capsys.readouterr().out
    told = json.loads(report.read_text())["metrics"]["goal"]
    assert told["human_mean"] == live["human_mean"] == pytest.approx(fmean(map(fmean, given.values())))
    assert told["human_alpha"] == live["human_alpha"]
    people, judge = [fmean(given[n]) for n in given], [made.items[n].judge["goal"] for n in given]
    assert live["judge_mean"] == pytest.approx(fmean(judge))
    mean = fmean(people), fmean(judge)
    products = sum((one - mean[0]) * (other - mean[1]) for one, other in zip(people, judge, strict=True))
    squares = [sum((value - m) ** 2 for value in values) for values, m in zip((people, judge), mean, strict=True)]
    assert live["measures"]["pearson"]["value"] == pytest.approx(products / (squares[0] * squares[1]) ** 0.5)


def test_two_models_are_drawn_from_the_same_rows(tmp_path):
    folders = [run_folder(tmp_path / name, by_rule(rewards, answer=name), name) for name, rewards in RUNS.items()]
    made = Annotation.create(tmp_path / "labels", folders, "models", 10)
    for item in made.items.values():
        row = int(item.source.rpartition(" ")[2])
        assert item.sides == list(map(str, folders)) and item.judge == [RUNS["base"][row], RUNS["other"][row]]
        assert item.source.startswith(TOM) and str(tmp_path) not in json.dumps(made.shown(PEOPLE[0], item.id))
    with pytest.raises(BadSettings, match="two evaluations"):
        Annotation.create(tmp_path / "one", folders[:1], "models", 10)
    with pytest.raises(BadSettings, match="nothing to label"):
        Annotation.create(tmp_path / "none", folders, "draft-refined", 10)
    assert len(made.items) == 4 and not (tmp_path / "none").exists()


RUNS = {"base": [0.0, 1.0, 1.0, 0.0], "other": [1.0, 0.0, 1.0, 1.0]}
