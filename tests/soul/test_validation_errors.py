"""The first problem of a ValidationError in the words of a user's error message."""

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from soul.validation_errors import first_problem, setting_problem


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    items: list[Inner]
    name: str = "x"

    @field_validator("name")
    @classmethod
    def _lower(cls, name):
        if name != name.lower():
            raise ValueError("use lower case")
        return name


def error_of(values):
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(values)
    return caught.value


@pytest.mark.parametrize(
    "values, field, message, text",
    [
        ({"items": [{"count": 1}, {}]}, "items.1.count", "is missing", "data.items.1.count: is missing."),
        ({"items": [], "name": "X"}, "name", "use lower case", "data.name='X': use lower case."),
        (
            {"items": [], "nmae": "x"},
            "nmae",
            "Extra inputs are not permitted",
            "data.nmae='x': Extra inputs are not permitted. Known keys of data: items, name.",
        ),
    ],
)
def test_the_first_problem_is_named(values, field, message, text):
    error = error_of(values)
    assert (first_problem(error).field, first_problem(error).message) == (field, message)
    assert setting_problem(error, "data", Settings.model_fields) == text
