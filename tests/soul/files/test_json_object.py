"""A file of settings that cannot be read is named, with the remedy, in the reader's own kind of error."""

import pytest

from soul.errors import BadSettings
from soul.files.json_object import read_object


@pytest.mark.parametrize(
    "content, problem",
    [(b"{", "is not valid JSON"), (b"\xff\xfe", "is not valid JSON"), (b"[1]", "is not a JSON object")],
)
def test_a_file_without_an_object_is_named(tmp_path, content, problem):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(BadSettings, match=rf"config.json {problem}.*\. Download it again\.$"):
        read_object(file, BadSettings, "Download it again.")
