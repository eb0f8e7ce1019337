"""Human labels from files: both kinds of records, and what is said of bad ones."""

import json

import pytest

from soul.errors import BadRow
from soul.judge.audit.human_labels import GTEvalLabel, PairwiseLabel, read_labels

REAL = [{"role": "user", "content": "hi, knots?", "metadata": {"lang": "en"}}, {"role": "assistant", "content": "Yes."}]
SIMULATED = [{"role": "user", "content": "Could you kindly tell me about knots?"}]
GTEVAL = {"conversation_id": "c-1", "real": REAL, "simulated": SIMULATED, "human_score": 0.7}
PAIRWISE = {"conversation_id": "c-2", "real": REAL, "simulated": SIMULATED, "human_label": "real"}


def write(folder, records, name="labels.jsonl"):
    path = folder / name
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text(f"[{','.join(lines)}]" if name.endswith(".json") else "\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["labels.jsonl", "labels.json"])
def test_both_kinds_come_from_one_file(tmp_path, name):
    first, second = read_labels(write(tmp_path, [GTEVAL, PAIRWISE], name))
    assert isinstance(first, GTEvalLabel) and isinstance(second, PairwiseLabel)
    assert (first.conversation_id, first.scores) == ("c-1", (0.7,))
    assert second.people == {"pairwise": (0.0,)}
    real, simulated = first.conversations
    assert real == [{"role": turn["role"], "content": turn["content"]} for turn in REAL]
    assert simulated == SIMULATED


NO_USER = [{"role": "assistant", "content": "Hello?"}]
BAD = {
    "not valid JSON": ("{not json", "line 2: cannot be read as JSON"),
    "not an object": ([1, 2], "line 2: expected an object, got list"),
    "not labelled yet": ({**GTEVAL, "human_score": None}, "field human_score: no annotator has labelled"),
    "above the scale": ({**GTEVAL, "human_score": 7}, "field human_score.0: Input should be less than or equal to 1"),
    "true is no score": ({**GTEVAL, "human_score": True}, "field human_score.0: Input should be a valid number"),
    "no such label": ({**PAIRWISE, "human_label": ["real", "A"]}, "is 'A'; write real, tie, simulated"),
    "NaN": (json.dumps({**GTEVAL, "human_score": float("nan")}), "field human_score.0"),
    "no user": ({**GTEVAL, "simulated": NO_USER}, "field simulated: has no turn of the user"),
}


@pytest.mark.parametrize("record, complaint", BAD.values(), ids=BAD.keys())
def test_a_bad_record_is_named_by_file_line_and_field(tmp_path, record, complaint):
    path = write(tmp_path, [{**GTEVAL, "conversation_id": "c-0"}, record])
    with pytest.raises(BadRow) as caught:
        read_labels(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 2")
    assert complaint in message
