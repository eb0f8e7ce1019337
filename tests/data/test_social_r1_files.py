"""Social-R1 task files from ToMBench: NaN options, letters with dots."""

import math

from data import social_r1
from tests.data.source_files import write_lines

RECORD = {
    "能力\nABILITY": "Belief",
    "STORY": "Bo leaves.",
    "QUESTION": "Is Bo here?",
    "OPTION-A": "A. Yes",
    "OPTION-B": "B. No",
    "OPTION-C": math.nan,
    "OPTION-D": math.nan,
    "答案\nANSWER": "B. ",
}


def test_absent_options_and_letters_with_dots(tmp_path):
    (record,) = social_r1.convert([write_lines(tmp_path / "Belief Task.jsonl", RECORD)])
    assert record["prompt_text"] == "Bo leaves.\n\nQuestion: Is Bo here?\nA. Yes\nB. No"
    assert (record["answer_letter"], record["answer_text"]) == ("B", "No")
    assert (record["subtask"], record["ability"], record["index"]) == ("Belief Task", "Belief", 0)
