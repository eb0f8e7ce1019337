"""Several checks are reported together; one alone keeps its class."""

import pytest

from soul.errors import BadSettings, Mistakes, SeveralMistakes, UnknownTask


def test_all_errors_are_told_also_those_of_a_check_within_a_check() -> None:
    inner, outer = Mistakes(), Mistakes()
    for text in ("a", "b"):
        with inner.of():
            raise BadSettings(text)
    with outer.of():
        inner.report()
    with outer.of():
        raise KeyError("what the refused setting should have given")
    with outer.of():
        raise UnknownTask("c")
    with pytest.raises(SeveralMistakes) as raised:
        outer.report()
    assert str(raised.value) == "3 things are wrong.\n\n1. BadSettings: a\n\n2. BadSettings: b\n\n3. UnknownTask: c"


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(KeyError), Mistakes().of():
        raise KeyError("bug")
