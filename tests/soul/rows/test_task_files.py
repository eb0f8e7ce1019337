"""Reading task files: whatever is wrong, one paragraph names file, row, field and remedy, and nothing else escapes."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soul.errors import BadRow
from soul.rows.task_files import TaskRow, parse_row, read_rows
from tests.soul.samples import FANTOM_BINARY, FANTOM_CHOICE, HITOM, PARATOMI, SAMPLES


def write(path, rows, columns=("data_source", "extra_info")):
    """A task file with these (data_source, extra_info) rows."""
    table = {"data_source": [source for source, _ in rows], "extra_info": [record for _, record in rows]}
    pq.write_table(pa.table({column: table[column] for column in columns}), path)
    return str(path)


def assert_readable(message, *parts):
    """One paragraph with all these parts."""
    assert all(part in message for part in parts) and "\n" not in message, message


@pytest.mark.parametrize("name", SAMPLES)
def test_a_good_row_comes_back(name, tmp_path):
    sample = SAMPLES[name]
    file = write(tmp_path / "good.parquet", [(sample.task, dict(sample.record))] * 2)
    first, second = read_rows([file])
    assert first.task.name == sample.task and first.row == second.row
    assert (first.where, second.where) == (f"{file}, row 0", f"{file}, row 1")


def test_a_file_may_hold_several_tasks_and_keeps_its_order(tmp_path):
    literal = {key: str(value) if isinstance(value, list) else value for key, value in PARATOMI.items()}
    rows = [("hitom", {**HITOM, "index": 5}), ("paratomi", {**literal, "index": 6}), ("hitom", {**HITOM, "index": 7})]
    found = read_rows([write(tmp_path / "one.parquet", rows), write(tmp_path / "two.parquet", rows[:1])])
    assert [item.task.name for item in found] == ["hitom", "paratomi", "hitom", "hitom"]
    assert [item.row.index for item in found] == [5, 6, 7, 5]
    # parquet fills the other task's columns with nulls; a row must not notice
    assert found[0].row == parse_row("hitom", rows[0][1]).row
    assert found[1].row == parse_row("paratomi", rows[1][1]).row


def test_a_row_without_index_gets_its_place():
    record = {key: value for key, value in HITOM.items() if key != "index"}
    assert parse_row("hitom", record, "f", 41).row.index == 41
    assert parse_row("hitom", {**record, "index": None}, "f", 41).row.index == 41


def without(record, key):
    return {k: v for k, v in record.items() if k != key}


BAD_ROWS = {
    "missing story": ("hitom", without(HITOM, "story"), "field story", "missing"),
    "blank story": ("hitom", {**HITOM, "story": " \n"}, "field story", "blank"),
    "gold not among the choices": ("hitom", {**HITOM, "correct_answer": "attic"}, "field correct_answer", "'attic'"),
    "story with a hole": ("paratomi", {**PARATOMI, "story": ["a", None]}, "field story.1", "string"),
    "code instead of a list": ("paratomi", {**PARATOMI, "story": "__import__('os').getcwd()"}, "field story", "list"),
    "choice out of range": ("fantom", {**FANTOM_CHOICE, "correct_answer": 2}, "field correct_answer", "0 to 1"),
    "unknown kind": ("fantom", {**FANTOM_BINARY, "question_type": "riddle"}, "field question_type", "'riddle'"),
    "no record": ("hitom", None, "field extra_info", "NoneType"),
    "unknown task": ("hitomm", HITOM, "field data_source", "'hitom'"),
    "null task": (None, HITOM, "field data_source", "None"),
}


@pytest.mark.parametrize("task, record, place, reason", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_a_bad_row_is_named_with_file_row_field_and_remedy(task, record, place, reason):
    with pytest.raises(BadRow) as caught:
        parse_row(task, record, "train.parquet", 12)
    assert_readable(str(caught.value), "train.parquet, row 12", place, reason)


def test_data_is_never_evaluated(tmp_path):
    trap = tmp_path / "trap"
    with pytest.raises(BadRow):
        parse_row("paratomi", {**PARATOMI, "story": f"[open({str(trap)!r}, 'w')]"})
    assert not trap.exists()


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**20),
    st.floats(),
    st.text(max_size=15),
    st.sampled_from(["[1, 2]", "['a']", "{}", "[[[[", "yes:no", "A. x, B. y", "nan", "[None]"]),
    st.lists(st.one_of(st.text(max_size=5), st.none(), st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_value_in_any_field_is_a_row_or_a_bad_row(name, data):
    sample = SAMPLES[name]
    key = data.draw(st.sampled_from(sorted({*sample.record, "extra_info", "answer_choices", "wrong_answer", "cands"})))
    record = {**sample.record, key: data.draw(values)}
    try:
        item = parse_row(sample.task, record)
    except BadRow as error:
        assert "row 0" in str(error)
        return
    assert isinstance(item, TaskRow)
    for feedback in (None, "x"):
        assert item.task.prompt(item.row, feedback)[0]["content"]
    assert isinstance(item.task.reference(item.row), str)
    assert all(isinstance(secret, str) for secret in item.task.secrets(item.row))
