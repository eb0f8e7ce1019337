"""Over-long rows: cut in the fields that the task names, in their order, as little as possible, and nowhere else."""

from typing import Any, ClassVar

from hypothesis import given
from hypothesis import strategies as st

from soul.row_fields import MARK
from soul.rows.truncation import truncate_row
from soul.task_types import Row


class Biography(Row):
    question: str
    history: list[str] = []
    biography: str = ""


class Reader:
    """As much of a task as cutting looks at."""

    cuts: ClassVar[Any] = (("history", "end"), ("biography", "start"))


def words(row: Any) -> int:
    return len(" ".join([row.question, *row.history, row.biography]).split())


ROW = Biography(index=0, question="who is it", history=["one two", "three four"], biography="a b c d e f")


def test_the_first_field_goes_first_and_the_end_of_a_history_stays() -> None:
    cut = truncate_row(Reader(), ROW, words, 11)
    assert cut and cut.fields == ("history",) and cut.length == 11
    assert cut.row.history == ["three four"] and cut.row.biography == ROW.biography


def test_a_biography_keeps_its_start_and_a_mark() -> None:
    cut = truncate_row(Reader(), ROW, words, 6)
    assert cut and cut.fields == ("history", "biography")
    assert cut.row.history == [] and cut.row.biography == f"a b {MARK}"


def test_what_no_cut_makes_fit_is_said_to_be_too_long() -> None:
    assert truncate_row(Reader(), ROW, words, 2) is None


@given(
    st.lists(st.text("ab ", min_size=1, max_size=9), max_size=6),
    st.lists(st.sampled_from("abc"), max_size=12),
    st.integers(1, 30),
)
def test_nothing_else_is_touched_and_as_much_as_possible_stays(
    history: list[str], biography: list[str], limit: int
) -> None:
    row = Biography(index=3, question="who is it", history=history, biography=" ".join(biography))
    cut = truncate_row(Reader(), row, words, limit)
    if cut is None:
        assert words(row.model_copy(update={"history": [], "biography": MARK if biography else ""})) > limit
        return
    assert words(cut.row) == cut.length <= limit and cut.row.question == row.question and cut.row.index == 3
    assert cut.row.history == history[len(history) - len(cut.row.history) :]
    if cut.fields == ("history",):
        more = history[len(history) - len(cut.row.history) - 1 :]
        assert words(row.model_copy(update={"history": more})) > limit
