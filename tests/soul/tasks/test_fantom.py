"""FANToM as its authors score it: their reading of an answer, and the numbers of whole question sets."""

import json

import pytest

from data import fantom
from soul.rows.task_files import parse_row
from tests.data.fantom_official import entry
from tests.soul.evaluate.finished_samples import scored_by_rule, shown_for_the_set
from tests.soul.samples import FANTOM_BINARY, FANTOM_CHOICE, FANTOM_FACT, FANTOM_LIST, tagged, verdict_of

YES = {**FANTOM_BINARY, "correct_answer": "yes"}


# Record, answer, our score, the score of the authors' functions for this text.
@pytest.mark.parametrize(
    "record, answer, ours, theirs",
    [
        (FANTOM_BINARY, "False", 1, 1),
        (FANTOM_BINARY, "She doesn't know it.", 1, 1),
        (FANTOM_BINARY, "Carl does not know this", 1, 1),
        (YES, "Ann knows this", 1, 1),
        (YES, "True.", 1, 1),
        (FANTOM_BINARY, "Nobody told her", 0, 1),
        (YES, "No one knows this", 0, 1),
        (FANTOM_BINARY, "It is unknown", 0, 0),
        (YES, "yes and no", 0, 1),
        (YES, "No, she knows it", 0, 1),
        (FANTOM_LIST, "Anna, Bobby", 0, 1),
        (FANTOM_LIST, "Ann, Bob", 1, 1),
        (FANTOM_LIST, "Ann, Bob, not Carl", 0, 0),
        (FANTOM_CHOICE, "B", 1, 1),
        (FANTOM_CHOICE, "I choose (b) here", 0, 1),
        (FANTOM_CHOICE, "Option B", 1, 0),
        (FANTOM_FACT, "three hives", 1, 1),
        (FANTOM_FACT, "Three hives.", 1, 0.5),
    ],
)
def test_an_answer_beside_the_authors_reading_of_it(record, answer, ours, theirs):
    verdict = verdict_of(parse_row("fantom", record), tagged(answer))
    assert (verdict.reward, verdict.metrics["accuracy_official"]) == (ours, pytest.approx(theirs))


def answered(records, wrong=(), without=()):
    """Samples in which these rows, by place, are answered wrongly; those of `without` are not played."""
    samples = []
    for place, record in enumerate(records):
        item = parse_row("fantom", record)
        right = item.task.target(item.row)[:1] if item.row.kind == "choice" else item.task.target(item.row)
        other = {"yes": "no", "no": "yes", "A": "B", "B": "A"}.get(right, "Carl")
        if place not in without:
            samples.append(scored_by_rule("fantom", record, tagged(other if place in wrong else right), place))
    return samples


def test_a_question_set_counts_only_if_all_of_it_is_right(tmp_path):
    (tmp_path / "fantom_v1.json").write_text(json.dumps([entry(n) for n in range(4)]))
    records = fantom.convert_official(tmp_path / "fantom_v1.json").records
    kinds = [record["question_type"] for record in records]
    access = kinds.index("tom:info_accessibility:binary")  # of the first set; its right answer is yes
    belief = kinds.index("tom:belief:inaccessible:multiple-choice", 10)  # of the second set
    assert shown_for_the_set(answered(records, wrong=(access, belief))) == {
        "all_correct": pytest.approx(0.5),
        "all_correct_answerability": 1.0,
        "all_correct_info_access": 0.75,
        "f1_answerability": 1.0,
        # Of 12 answers 8 are yes: 7 of them right, 5 said no.
        "f1_info_access": pytest.approx(8 / 12 * 2 * 7 / (7 + 8) + 4 / 12 * 2 * 4 / (5 + 4)),
    }
    # A set that a limit has torn is no whole set, so its answers do not make a set that is right.
    torn = shown_for_the_set(answered(records, wrong=(access,), without=(access + 1, belief)))
    assert torn["all_correct"] == 1.0
    # Files that do not say how many rows a set has: what is there counts as the set.
    old = [{key: value for key, value in record.items() if key != "set_rows"} for record in records]
    found = shown_for_the_set(answered(old, wrong=(access,), without=(access + 1, belief)))
    assert found["all_correct"] == pytest.approx(0.75)


def test_with_several_samples_the_numbers_are_means_over_whole_passes(tmp_path):
    (tmp_path / "fantom_v1.json").write_text(json.dumps([entry(0)]))
    records = fantom.convert_official(tmp_path / "fantom_v1.json").records
    second = [sample.model_copy(update={"sample": 1}) for sample in answered(records, wrong=(0,))]
    found = shown_for_the_set([*answered(records), *second])
    assert found["all_correct"] == 0.5 and found["all_correct_answerability"] == 1.0
