"""Samples in the report as a reader meets them: answers side by side, scenes as one, filters in the address.

Promise under test: right and wrong are signs with a name; a scene stands in the order in which it was spoken, thoughts
marked as private, each seat's own view reachable; an address shows the same list again, below the bar; every text is
text, and what is new can be read in light, in the dark and on a phone.
"""

import pytest

from soul.evaluate.numbers.results import breakdowns, summarise
from soul.evaluate.report import write_html
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM, numbered
from tests.soul.evaluate.report.browser_pages import column, found, needs_a_browser, opener
from tests.soul.evaluate.run.answered import THOUGHT, answered, encounter, give_hitom_answers, scene

pytestmark = needs_a_browser
ANSWERS = ["<answer>B</answer>", "<answer>C</answer>", "I cannot tell.", "<answer>D</answer>"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    lines = [*answered([1.0, 0.0, 0.0, 0.5], ANSWERS), scene(), scene(None, 1), encounter(), encounter(0.2, 1)]
    lines += numbered([0.0] * 200, "paratomi")
    with pytest.MonkeyPatch.context() as patched:
        give_hitom_answers(patched)
        run = finished_run(tmp_path_factory.mktemp("run"), lines)
        results = summarise(run.samples, run.sets)
        return write_html(run, results, breakdowns(run, results))


@pytest.fixture
def opened(browser, report):
    with opener(browser, report) as open_:
        yield open_


def test_the_list_shows_question_expected_and_given_with_signs(opened):
    page = opened(f"#samples?set={TOM}")
    found(page, "4 of 208 samples")
    assert all(text.startswith("the ") for text in column(page, "target"))
    assert all(text.endswith("?") for text in column(page, "question"))
    assert column(page, "given") == ["✓B", "✗C", "✗not readable: I cannot tell.", "≈D"]
    marks = page.locator("#list td.given .mark")
    names = [mark.get_attribute("aria-label") for mark in marks.all()]
    assert names == ["right", "wrong", "wrong", "partly right"]
    assert page.inner_text("#list th.given") == "given"
    page.select_option("[name=set]", "coser")
    found(page, "2 of 208 samples")
    assert page.inner_text("#list th.given") == "last turn" and not page.locator("#list th.target").is_visible()


def test_a_scene_is_one_conversation_with_private_thoughts(opened):
    page = opened("#coser/0/0")
    page.wait_for_selector("#sample .scene")
    speakers = page.locator("#sample .scene .who b").all_inner_texts()
    assert speakers == ["Anne", "Environment", "Ben", "Anne"]
    said = page.locator("#sample .scene li > .said").all_inner_texts()
    assert said == ["Good evening. (sits down)", "The lamp goes out.", "(says nothing)", "Who put out the lamp?"]
    private = page.locator("#sample .scene .private").all_inner_texts()
    assert private[0] == f"private thought: {THOUGHT}" and private[2] == "private thought: It was me."
    assert private[1].startswith("private: reasoning, 11 characters") and "Stay quiet" not in page.inner_text(".scene")
    assert page.locator("#sample .scene .narrator .who").inner_text() == "Environment narrator"
    page.click("#sample .scene .private summary")
    assert "Stay quiet" in page.inner_text(".scene")
    views = page.locator("#sample .seat-view")
    assert views.count() == 2 and not views.first.locator(".turn").first.is_visible()
    views.first.locator("summary").first.click()
    assert f"[{THOUGHT}] Good evening." in views.first.inner_text()
    assert page.locator("#sample b", has_text="this").count() == 0  # a thought's markup is text


def test_filters_order_and_page_are_in_the_address(opened):
    page = opened()
    page.click("#to-samples")
    found(page, "208 samples")
    page.select_option("[name=set]", "paratomi")
    found(page, "200 of 208 samples")
    page.click("#list thead >> text=row")
    page.click("#list thead >> text=row")
    page.click("#page-on")
    assert page.url.endswith("#samples?set=paratomi&sort=-number&page=2")
    assert column(page, "number")[0] == "99"
    shared = page.url.partition("#")[2]
    other = opened(f"#{shared}")
    found(other, "200 of 208 samples")
    assert column(other, "number")[0] == "99" and other.inner_text("#page") == "2 / 2"
    assert other.input_value("[name=set]") == "paratomi"
    assert other.locator("#list th.number").get_attribute("aria-sort") == "descending"
    page.click("#list tbody tr:nth-child(3) a")
    page.wait_for_selector("#sample .score")
    assert page.url.endswith("#paratomi/97/0?set=paratomi&sort=-number")
    page.keyboard.press("Escape")
    page.fill("[name=text]", "no such words")
    found(page, "0 of 208 samples")
    assert "text=no+such+words" in page.url
    page.click("#to-results")
    page.click("#to-samples")  # the list is as it was left
    found(page, "0 of 208 samples")
    page.click("text=Clear")
    found(page, "208 samples")
    assert page.url.endswith("#samples")
