"""What the report says of a sample in few words.

Promise under test: every sample has its question where the record holds one; the right and the given answer are the
task's own, and a record that the task no longer reads hides nothing else; groups have names in words; a price that is
not known is said once.
"""

import json
import re

from soul import tasks
from soul.evaluate.report.page_parts import SHOWN_OF_ANSWERS
from soul.evaluate.report.results_table import KINDS, VALUES, kind_name, names_of, value_name
from soul.evaluate.tables.answers import Answers, answers_of, question_of
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM, numbered, record_of, sample, usage
from tests.soul.evaluate.report.test_report import Page, carried, report_of, unpacked
from tests.soul.evaluate.run.answered import ALONE, answered, give_hitom_answers

# Records that hold no text which could stand for a question.


def test_the_question_is_the_field_of_that_name_or_a_labelled_line_or_the_first_line():
    assert question_of({"story": "s", "question": "Where is it?", "scenario": "x"}) == "Where is it?"
    assert question_of({"prompt_text": "A long story.\n\nQuestion: Who knows?\nA. he\nB. she"}) == "Who knows?"
    assert question_of({"question": " ", "intent": "\n Find a lamp.\nCheap."}) == "Find a lamp."
    assert question_of({"prompt": ["no text"], "numbers": 3}) == ""


def test_answers_are_the_tasks_own(monkeypatch):
    give_hitom_answers(monkeypatch)
    right, none = answered([1.0, 0.0], ["<answer>b</answer>", "I do not know."])
    played_never = sample(None, 2)
    played_never.draft.seats = None
    other_version = right.model_copy(update={"record": {"question": "Where?"}})
    gold = record_of(TOM, 0)[0]["correct_answer"]
    assert answers_of([right]) == [Answers(record_of(TOM, 0)[0]["question"], f"the {gold}", "B")]
    assert [found.given for found in answers_of([right, none, played_never])] == ["B", None, None]
    assert answers_of([other_version]) == [Answers("Where?", None, None)]


def test_the_page_carries_short_answers_for_the_list_and_whole_ones_for_the_sample(tmp_path, monkeypatch):
    give_hitom_answers(monkeypatch)
    long = "box " * 100
    monkeypatch.setattr(tasks.load(TOM).__class__, "target", lambda self, row: long)
    run = finished_run(tmp_path, answered([1.0, 0.0], ["<answer>B</answer>", "No idea."]))
    page = Page(report_of(run))
    index = json.loads(unpacked(page.scripts["index"]))
    assert index["target"] == [long[:SHOWN_OF_ANSWERS]] * 2 and index["given"] == ["B", None]
    assert index["last_turn"] == ["", "No idea."]  # where the answer is shown its turn is not needed
    assert [line["target"] for line in carried(page)] == [long, long]
    (known,) = json.loads(page.scripts["known"])["sets"]
    assert known == {"name": TOM, "metric": "accuracy", "best": 1.0, "worst": 0.0}


def test_groups_have_names_in_words(tmp_path):
    assert kind_name("books") != "books" and value_name("books", "ood") == "not in the training data (ood)"
    assert kind_name("my kind") == "my kind" and value_name("my kind", "a_b") == "a b"
    named = names_of([{"order": "2"}, {"order": "3", "books": "id"}])
    assert named["order"] == (KINDS["order"], {"2": "2", "3": "3"}) and list(named) == ["order", "books"]
    assert all(len(set(values.values())) == len(values) for values in VALUES.values())
    run = finished_run(tmp_path, numbered([1.0, 0.0], "coser", groups={"books": "ood"}))
    page = Page(report_of(run))
    lines = [line for line in page.lines if line]
    assert any(line[0] == "not in the training data (ood)" for line in lines)
    asked = [json.loads(attributes["data-browse"]) for _, attributes in page.elements if "data-browse" in attributes]
    assert {"set": "coser", "kind": "books", "value": "ood"} in asked  # filters know the record's own value


def test_without_any_price_there_is_no_column_of_costs(tmp_path):
    unpriced = {"policy": usage(0.0, 100, 20, unpriced=1), "judge": usage(0.0, 100, 20, unpriced=1)}
    text = report_of(finished_run(tmp_path / "none", numbered([1.0, 0.0], usages=unpriced)))
    assert ">cost<" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    some = [*numbered([1.0, 0.0], usages=unpriced), *numbered([1.0], "paratomi", usages=ALONE)]
    lines = {line[0]: line for line in Page(report_of(finished_run(tmp_path / "some", some))).lines if line}
    assert "price unknown" in lines[TOM] and "$0.50" in lines["paratomi"]
