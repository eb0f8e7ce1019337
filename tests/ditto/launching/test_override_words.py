"""No key that stands among the words of a command line is repeated."""

import pytest

from ditto.launching.override_parser import refuse_secrets
from ditto.settings import BadConfig


@pytest.mark.parametrize(
    "word",
    [
        "sk-abcdef123456",
        "sk-abcdef123456=1",
        "+sk-abcdef123456=1",
        "run.dir/sk-abcdef123456=1",
        "judge.api_key=abcdef123456",
        "judge.base_url=http://me:abcdef123456@host/v1",
    ],
)
def test_a_key_is_refused_and_not_shown(word: str) -> None:
    with pytest.raises(BadConfig, match="holds an API key") as refused:
        refuse_secrets([word])
    assert "abcdef" not in str(refused.value)
