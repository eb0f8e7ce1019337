"""Two runs on a page, row by row.

Promise under test: all paired rows are on it with both texts, and only these; it can be filtered by set and outcome,
sorted by difference, and paged, also with thousands of rows; it leads into both reports; hostile text is text, and the
page asks for nothing.
"""

import pytest

from soul.compare.__main__ import main
from soul.evaluate.numbers.results import breakdowns, summarise
from soul.evaluate.report import write_html
from tests.soul.compare.test_compare import run_folder
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM, numbered
from tests.soul.pages.browser_pages import column, found, needs_a_browser, opener
from tests.soul.pages.hostile_samples import HOSTILE
from tests.soul.evaluate.report.test_report import Page, carried
from tests.soul.evaluate.run.answered import ALONE, answered, encounter, give_hitom_answers, scene


def reported(folder, lines, model):
    """A run with its report."""
    run = finished_run(folder, lines, policy={"model": model, "base_url": "http://127.0.0.1:1/v1"})
    results = summarise(run.samples, run.sets)
    write_html(run, results, breakdowns(run, results))
    return folder


def texts(values, said):
    return answered(values, [f"<answer>{letter}</answer>" for letter in said])


def base_lines():
    lines = texts([1.0, 0.0, 0.0, 0.5, None], "BCDBB")
    lines[0].draft.critique = "The base was <i>right</i>."
    return [*lines, scene(0.4), encounter(0.1)]


def other_lines():
    lines = [*texts([0.0, 1.0, 0.0, 0.75, 1.0], "CBDAB"), scene(0.5), encounter(0.1)]
    lines[1].draft.seats["policy"][-1]["content"] = f"{HOSTILE} <answer>B</answer>"
    lines[1].draft.critique = HOSTILE
    return lines


@pytest.fixture(scope="module")
def page_of_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    runs = [
        reported(folder / "runs" / name, lines, name)
        for name, lines in (("base", base_lines()), ("other", other_lines()))
    ]
    file = folder / "pages" / "of two.html"
    with pytest.MonkeyPatch.context() as patched:
        give_hitom_answers(patched)
        assert main([*map(str, runs), "--html", str(file)]) == 0
    return file


# ---- the file


def test_the_page_holds_all_pairs_with_both_texts_and_only_these(page_of_two):
    kept = carried(Page(page_of_two.read_text(encoding="utf-8")))
    assert [(line["set"], line["number"]) for line in kept] == [("sotopia", 0)] + [(TOM, n) for n in range(4)] + [
        ("coser", 0)
    ]
    first = next(line for line in kept if (line["set"], line["number"]) == (TOM, 0))
    base, other = first["sides"]
    assert base["draft"]["seats"]["policy"][-1]["content"] == "<answer>B</answer>" and base["given"] == "B"
    assert other["draft"]["seats"]["policy"][-1]["content"] == "<answer>C</answer>" and first["target"]
    assert base["draft"]["critique"] == "The base was <i>right</i>." and (base["score"], other["score"]) == (1.0, 0.0)


def test_what_both_were_shown_stands_there_once(tmp_path):
    runs = []
    for name, said in (("a", "one"), ("b", "two")):
        line = numbered([1.0], usages=ALONE)[0]
        shown = [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Question?"}]
        line.draft.seats = {"policy": [*shown, {"role": "assistant", "content": said}]}
        runs.append(run_folder(tmp_path / name, [line], name))
    assert main([*map(str, runs), "--html", str(tmp_path / "f.html")]) == 0
    text = (tmp_path / "f.html").read_text(encoding="utf-8")
    (line,) = carried(Page(text))
    assert [message["content"] for message in line["prompt"]] == ["Rules.", "Question?"]
    assert [[m["content"] for m in side["draft"]["seats"]["policy"]] for side in line["sides"]] == [["one"], ["two"]]
    assert '"reports":[null,null]' in text  # no report, no link


# ---- in a browser


@pytest.fixture
def opened(browser, page_of_two):
    reports = [page_of_two.parents[1] / "runs" / name / "report.html" for name in ("base", "other")]
    with opener(browser, page_of_two, reports) as open_:
        yield open_


@needs_a_browser
def test_rows_are_filtered_by_set_and_outcome_and_sorted_by_difference(opened):
    page = opened()
    page.click("#to-samples")
    found(page, "6 rows")
    assert column(page, "difference") == ["+100.0", "+25.0", "+10.0", "0.0", "0.0", "-100.0"]
    assert page.locator("#list th.difference").get_attribute("aria-sort") == "descending"
    page.click("#list thead >> text=difference")
    page.select_option("[name=state]", "lost")
    found(page, "1 of 6 rows")
    assert column(page, "outcome") == ["▼ lost"] and "state=lost" in page.url
    page.select_option("[name=state]", "different")
    found(page, "4 of 6 rows")
    page.click("#to-results")
    page.locator("#sets-table tr", has_text=TOM).locator("a", has_text="2 won").click()
    found(page, "2 of 6 rows")
    assert page.input_value("[name=set]") == TOM
    page.click("text=Clear")
    page.fill("[name=text]", "alert(1)")
    found(page, "1 of 6 rows")


@needs_a_browser
def test_a_row_shows_both_texts_and_leads_into_both_reports(opened):
    page = opened(f"#{TOM}/1/-")
    page.wait_for_selector("#sample .sides")
    assert "0.0 → 100.0" in page.inner_text("#sample .verdict") and "won" in page.inner_text("#sample .verdict")
    assert page.locator("#sample .answers dt").all_inner_texts() == ["Expected", "base", "other"]
    assert page.locator("#sample .answers dd").all_inner_texts()[1:] == ["✗C", "✓B"]
    shown = HOSTILE.replace("\ud83d", "\ufffd")
    theirs = page.locator("#sample .sides > section").nth(1)
    assert theirs.locator("blockquote").text_content().replace("\ud83d", "\ufffd") == shown
    assert theirs.locator(".said").text_content().replace("\ud83d", "\ufffd") == f"{shown} <answer>B</answer>"
    assert page.locator("img").count() == 0
    theirs.locator("a", has_text="open in its report").click()
    page.wait_for_selector("#sample .score")
    assert page.url.endswith(f"runs/other/report.html#{TOM}/1/0") and "hitom, row 1" in page.inner_text("#sample h2")
