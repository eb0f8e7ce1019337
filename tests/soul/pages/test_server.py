"""What the viewer's server answers, and what it refuses."""

import json

import pytest

from soul.errors import SoulError
from soul.judge.call.kept_call import KeptCall
from soul.pages import sessions
from soul.pages.api import NotThere
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import numbered
from tests.soul.figures.made_up_runs import session, training
from tests.soul.pages.browser_pages import until
from tests.soul.pages.served import served


@pytest.fixture(scope="module")
def viewed(tmp_path_factory):
    root = tmp_path_factory.mktemp("outputs")
    run = training(root / "runs" / "ditto-1", 0, steps=3, tasks=("sotopia", "coser"))
    (run / "run.json").write_text('{"objective": "ditto", "task": "sotopia", "resumed": [{"step": 2, "time": 5.0}]}')
    (run / "global_step_2").mkdir()
    (root / "secret.html").write_text("not a page of ours")
    finished_run(root / "eval-base", numbered([1.0, 0.0]))
    for name, damaged in (("torn", "samples.jsonl"), ("old", "settings.json")):
        finished_run(root / name, numbered([1.0, 0.0]))
        (root / name / damaged).write_text("no JSON\nat all\n")
    with served(root) as client:
        yield client


def test_only_the_printed_address_is_answered(viewed):
    port = viewed.server.server_address[1]
    assert viewed.server.server_address[0] == "127.0.0.1" and len(viewed.server.token) >= 22  # 16 random bytes
    assert viewed.answer("/")[0] == viewed.answer("/", Host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
        status, _, body = viewed.answer("/api/folders", Host=host)
        assert status == 403 and b"ditto" not in body
    for path in ("/", "/api/folders", f"{viewed.prefix[:-1]}/", f"{viewed.prefix}x/", "/%C3%A9/api/folders"):
        assert viewed.raw(path)[0] == 404
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):  # no extension changes anything
        assert viewed.answer("/api/folders", method)[0] == 405


def test_every_answer_has_the_headers_that_protect_it(viewed):
    run = viewed.ids()["runs/ditto-1"]
    for path in ("/", "/api/folders", f"/api/run/{run}/overview", f"/api/run/{run}/search?text=a", "/nothing"):
        for method in ("GET", "HEAD"):
            _, headers, body = viewed.answer(path, method)
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"
            assert bool(body) is (method == "GET")


class Notes:
    """An extension that keeps what is posted to it."""

    def __init__(self):
        self.kept = []

    def get(self, parts, query):
        return {"kept": self.kept, "parts": parts, **query}

    def post(self, parts, body):
        if parts != ["add"]:
            raise NotThere
        if not body:
            raise SoulError("an empty note\nof two lines")
        self.kept.append(body)
        return {"count": len(self.kept)}


def test_only_the_page_itself_may_change_something_and_only_where_an_extension_can(tmp_path):
    notes = Notes()
    with served(tmp_path, notes=notes) as client:
        port = client.server.server_address[1]
        own = {"Origin": f"http://127.0.0.1:{port}", "Content_Type": "application/json"}

        def post(path="/api/notes/add", body='{"a": 1}', **other):
            headers = {name: value for name, value in {**own, **other}.items() if value is not None}
            return client.answer(path, "POST", body, **headers)

        assert json.loads(post()[2]) == {"count": 1}
        assert post(Origin=f"http://localhost:{port}", Content_Type="application/json; charset=utf-8")[0] == 200
        foreign = (f"http://127.0.0.1:{port + 1}", "https://evil.example", "null", None)
        assert [post(Origin=one)[0] for one in foreign] == [403] * 4
        assert [post(Content_Type=kind)[0] for kind in ("text/plain", "application/x-www-form-urlencoded")] == [403] * 2
        assert (
            post(Host=f"evil.example:{port}")[0] == 403 and client.raw("/api/notes/add", "POST", "{}", **own)[0] == 404
        )
        assert [post(Content_Length=size)[0] for size in ("1000001", "many", "\xb2", "-1")] == [413] * 4
        assert [post(body=body)[0] for body in ("{", "[1]", "\xff")] == [422] * 3
        for path in ("/api/notes", "/api/notes/else", "/api/folders", "/api/others/add", "/notes/add", "/"):
            assert post(path)[0] == 404
        status, _, body = post(body="{}")
        assert status == 422 and json.loads(body) == {"error": "an empty note of two lines"}
        assert client.json("/api/notes/x?y=1") == {"kept": [{"a": 1}] * 2, "parts": ["x"], "y": "1"}
        assert client.answer("/api/notes/add", "PUT", "{}", **own)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        *["/secret.html", "/../outputs/secret.html", "/files/secret.html", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"],
        *["/api/run/../../folders", "/api/run/runs%2fditto-1/overview", "/api/folders/more", "/api", "/eval-base"],
    ],
)
def test_no_address_leads_to_another_file(viewed, path):
    assert viewed.answer(path)[0] == 404


def test_the_folders_are_listed_newest_first(viewed):
    answer = viewed.json("/api/folders")
    facts = {one["path"]: one for one in answer["folders"]}
    run, evaluation = facts["runs/ditto-1"], facts["eval-base"]
    assert len(facts) == 4 and answer["root"].endswith(viewed.server.api.catalogue.root.name)
    assert (run["kind"], run["done"], run["objective"], run["tasks"]) == ("training", 3, "ditto", ["sotopia"])
    assert (evaluation["kind"], evaluation["name"], evaluation["tasks"]) == ("evaluation", "under-test", ["hitom"])
    changed = [one["changed"] for one in answer["folders"]]
    assert changed == sorted(changed, reverse=True) and not any(one["state"] == "running" for one in answer["folders"])


def test_a_damaged_evaluation_is_named_in_one_line_and_the_others_are_shown(viewed):
    for path in ("torn", "old"):
        for rest in ("overview", "index", "session/1"):
            status, _, body = viewed.answer(f"/api/run/{viewed.ids()[path]}/{rest}")
            error = json.loads(body)["error"]
            assert status == 422 and path in error and "\n" not in error
    assert viewed.run("eval-base")("session/2")["draft"]["reward"] == 0.0


def test_numbers_and_sessions_of_a_run(viewed):
    run = viewed.run("runs/ditto-1")
    until(lambda: run("overview")["indexing"] is None)
    overview = run("overview")
    assert set(overview["curves"]) == {"all", "sotopia", "coser"} and not overview["problems"]
    metrics = overview["metrics"]["series"]
    for name, curve in (("draft", "reward_draft"), ("refined", "reward_refined"), ("gap", "gap")):
        assert overview["curves"]["all"][name]["mean"] == pytest.approx(metrics[f"ditto/{curve}"], abs=1e-6)
        assert overview["curves"]["coser"][name]["mean"] == pytest.approx(
            metrics[f"ditto/task/coser/{curve}"], abs=1e-6
        )
    draft = overview["curves"]["all"]["draft"]
    assert all(
        low < mean < high for low, mean, high in zip(*(draft[name] for name in ("low", "mean", "high")), strict=True)
    )
    kinds = [(event["step"], event["kind"]) for event in overview["events"]]
    assert kinds == [(2, "resume"), (2, "checkpoint")]
    assert run(f"overview?known={overview['revision']}")["unchanged"]

    index = run("index?after=0")
    columns = index["columns"]
    place = columns["id"].index(columns["id"][-1])
    record = run(f"session/{columns['id'][place]}")
    assert record["session"] == columns["session"][place] and record["draft"]["seats"]["policy"]
    news = run(f"index?after={columns['id'][-1]}&known={index['revision']}")
    assert (news["reset"], news["columns"]["id"]) == (False, [])


def test_wrong_requests_are_answered_with_a_reason(viewed):
    number = viewed.ids()["runs/ditto-1"]
    for rest, status in (
        *[("session/99999", 410), ("session/x", 422), ("session", 422), ("index?after=%C2%B2", 422)],
        *[("search", 422), ("overview?known=1e9", 422), ("overview?other=1", 422), ("else", 404)],
    ):
        got, _, body = viewed.answer(f"/api/run/{number}/{rest}")
        assert got == status and json.loads(body)["error"], rest


def test_a_search_finds_what_is_written_however_it_is_written(tmp_path, monkeypatch):
    """Escapes, quotes, letters outside ASCII in either form of a line, upper and lower case, lone surrogates, NaN."""
    texts = ['He said "NO\\never"', "Ünïcode Straße", "line one\nline two", "plain", "half \ud800 pair"]
    records = [session("sotopia", 1, number, 0, (0.5, None), text) for number, text in enumerate(texts)]
    records[3].draft.metrics = {"odd": float("nan")}
    asked = [{"role": "user", "content": "Is it a Fugue?"}]
    records[1].draft.calls = [
        KeptCall(model="m", request=asked, reply="Hardly, a canon."),
        KeptCall(model="m", request=[]),
    ]
    traces = tmp_path / "run" / "traces"
    traces.mkdir(parents=True)
    lines = [record.to_line(ascii_only=number % 2 == 0) for number, record in enumerate(records)]
    (traces / "step_000001.jsonl").write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
    with served(tmp_path) as client:
        run = client.run("run")
        until(lambda: len(run("index").get("columns", {}).get("id", ())) == len(texts))

        def hits(text):
            found, after = [], 0
            while after is not None:  # each answer looks at one session
                answer = run(f"search?text={text}&after={after}")
                assert len(answer["hits"]) <= 1 and 0 < answer["share"] <= 1
                found, after = found + answer["hits"], answer["after"]
            return found

        monkeypatch.setattr(sessions, "SEARCH_S", -1.0)
        assert hits("%22no%5CNEVER%22") == [1]
        assert hits("%C3%9CN%C3%8FCODE") == hits("%C3%BCn") == hits("stra%C3%9Fe") == [2]
        assert hits("a%20fugue") == hits("HARDLY") == [2]  # what the judge was sent and answered
        assert hits("one%0ALINE") == [3] and hits("PLAIN") == [4] and hits("half") == [5]
        assert hits("sell+it.") == [1, 2, 3, 4, 5] and hits("sotopia") == hits("reward") == []
        assert run("session/4")["draft"]["metrics"] == {"odd": "NaN"}
        assert run("session/5")["draft"]["seats"]["policy"][1]["content"] == "half \ud800 pair"
