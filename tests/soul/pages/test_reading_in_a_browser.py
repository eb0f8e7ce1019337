"""What people read: requests linked to new words, groups by keys, results as in results.json, reviews of training data.

Promise under test: a linked word is one that a sentence of the feedback asks for; each shown number equals the files.
"""

import json
from pathlib import Path

import pytest

import soul.pages
from soul.evaluate.numbers.results import summarise_run
from soul.evaluate.outputs import write_outputs
from soul.evaluate.run.run_folder import EvaluationRun
from soul.examples.command import write
from soul.pages.extensions import review
from soul.pages.page import served_page
from soul.rows.review import Review, marks_of
from tests.soul.pages.browser_pages import NOW, needs_a_browser, opener, settled
from tests.soul.pages.served import served

pytest.importorskip("playwright.sync_api")
pytestmark = needs_a_browser
SCRIPTS = "\n".join(
    (Path(soul.pages.__file__).parent / "script" / f"{name}.js").read_text(encoding="utf-8")
    for name in ("elements", "diff", "turns")
)
# Feedback, draft, refined answer -> the sentences that are linked, each with its words.
PAIRS = [
    (
        "Apologise for the delay. You were rude.",
        "It is late.",
        "I apologise, it is late.",
        [("Apologise", "apologise")],
    ),
    ("The tone is cold.", "It is late.", "The tone of it is cold and late.", []),
    ("Please ask about the price, and thank her.", "Fine.", "Thanks! Which price?", [("Please ask", "Thanks price")]),
    ("Avoid blaming Ben.", "Ben did it.", "Somebody did it.", []),
    ("Name the box. Then explain the rule.", "A.", "The box, by a rule.", [("Name", "box"), ("Then explain", "rule")]),
]


def test_a_request_is_linked_to_the_new_words_that_it_asks_for(browser):
    page = browser.new_page()
    found = page.evaluate(
        f"""(pairs) => {{ const WITHHELD = "[withheld]"; const withheldMarked = (text) => [text]; {SCRIPTS};
        return pairs.map(([feedback, draft, refined]) => {{
          const requests = new Requests(feedback);
          const [before, after] = [{{ text: draft }}, {{ text: refined }}];
          markPair(before, after, requests);
          const drawn = h("div", {{}}, requests.draw());
          const linked = requests.sentences.filter(({{ words }}) => words.length);
          const wordsOfIt = ({{ words }}) => words.map((one) => one.textContent).join(" ");
          return [drawn.textContent, linked.map((one) => [one.text, wordsOfIt(one)])];
        }}); }}""",
        [pair[:3] for pair in PAIRS],
    )
    page.close()
    for (feedback, _, _, expected), (shown, linked) in zip(PAIRS, found, strict=True):
        assert shown == feedback
        assert [words for _, words in linked] == [words for _, words in expected]
        assert all(text.startswith(start) for (text, _), (start, _) in zip(linked, expected, strict=True))


def test_groups_open_and_close_by_arrow_keys_and_say_their_means(opened, viewed):
    page = opened("sessions?by=group&set=hitom&split=step")
    settled(page)
    columns = viewed.run("first")("index")["columns"]
    task, prompt, split = (
        [columns[name]["values"][code] for code in columns[name]["codes"]] for name in ("task", "prompt", "split")
    )
    groups = list(zip(task, split, columns["step"], prompt, strict=True))
    first = next(group for group in groups if group[:2] == ("hitom", "step"))
    rewards = [draft for draft, group in zip(columns["draft"], groups, strict=True) if group == first]
    head = page.locator(f"{NOW} tr.group").first
    shown = head.inner_text()
    assert str(len(rewards)) in shown and f"{sum(rewards) / len(rewards):.3f}" in shown
    head.locator("button").focus()
    members = page.locator(f"{NOW} tr[data-place]")
    assert members.count() == 0
    page.keyboard.press("ArrowRight")
    members.first.wait_for()
    assert members.count() == len(rewards)
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(200)
    assert members.count() == 0


def test_the_results_are_those_of_results_json_and_table_md(opened, outputs):
    run = EvaluationRun.load(outputs / "base")
    write_outputs(run)
    results = json.loads((run.folder / "results.json").read_text())
    table = (run.folder / "table.md").read_text()
    page = opened("results", "base")
    settled(page)
    lines = [line.split("\t") for line in page.locator(f"{NOW} table.data").first.locator("tr").all_inner_texts()]
    shown = {cells[0]: cells for cells in lines if len(cells) > 3}
    scored = {name: one for name, one in results["sets"].items() if one["mean"] is not None}
    assert len(scored) >= 2
    for name, one in scored.items():
        score = shown[name][1]
        assert score.startswith(f"{100 * one['mean']:.1f}") and score in table
        page.get_by_role("button", name=name, exact=True).click()
        metrics = page.get_by_role("region", name=f"other metrics of {name}").locator("tbody tr").all_inner_texts()
        expected = {metric: f"{value:.3f}" for metric, value in summarise_run(run).sets[name].metrics.items()}
        assert {line.split("\t")[0]: line.split("\t")[1] for line in metrics} == expected


def test_a_row_of_a_training_file_is_marked_and_stays_marked(browser, tmp_path):
    file = tmp_path / "data" / "hitom.parquet"
    write(["hitom"], 60, file)
    with served(tmp_path / "data", served_page(extensions=["review"]), review=review(Review(file.parent))) as client:
        with opener(browser, client.server.address) as open_:
            page = open_("#review")
            page.get_by_role("link", name="hitom.parquet").click()
            page.get_by_text("1 to 50 of 60").wait_for()
            page.get_by_role("button", name="drop").first.click()
            page.locator("button[aria-pressed=true]").wait_for()
            again = open_("#review/hitom.parquet")
            again.locator("button[aria-pressed=true]").wait_for()
            assert again.locator("button[aria-pressed=true]").inner_text() == "drop"
            again.get_by_label("Jump to row").fill("51")
            again.keyboard.press("Enter")
            again.get_by_text("51 to 60 of 60").wait_for()
    assert list(marks_of(file).values()) == ["drop"]
