"""UserLLM's training thirds: PRISM by user with intents that are asked for, and as many questions of each kind."""

import json
from collections import Counter
from pathlib import Path

from data import userllm, userllm_train
from soul.rows import data_card as card
from soul.rows.task_files import read_rows
from soul.testing import FakeOpenAI, Json
from tests.data.source_files import build_training, write_lines
from tests.data.test_userllm_intents import FIXED, talk
from tests.published import KEPT


def questions(folder: Path, csqa: str, nq: str, count: int) -> None:
    options = {"text": ["a barn", "the moon", "soup"], "label": ["A", "B", "C"]}
    asked = [f"Where do {csqa[:3]} owls {number} live?" for number in range(count)]
    write_lines(folder / csqa, *({"question": text, "choices": options} for text in asked))
    # The first two songs are in both files.
    write_lines(folder / nq, *({"question": f"who wrote song {n}", "answer": ["Ada"]} for n in range(count)))


def test_prism_is_a_third_and_no_evaluated_user_is_asked_about(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "3000")
    folder = tmp_path / "sources" / "userllm"
    folder.mkdir(parents=True)
    questions(folder, "train_rand_split.jsonl", "NQ-open.train.jsonl", 20)
    questions(folder, "dev_rand_split.jsonl", "NQ-open.dev.jsonl", 2)
    # Number 9 copies its user in both sentences, and number 8 only shares a word.
    talks = [talk(n, f"do bees number {n} see red or blue", "why") for n in range(10)]
    write_lines(folder / "conversations.jsonl", *talks)
    write_lines(folder / "intents.jsonl", {"key": "c0", "answer": {"intent": "Learn of insect vision."}, **KEPT})

    def script(request):
        text = json.dumps(request.data["messages"])
        if "number 9" in text:
            return Json({"intent": "Ask do bees number 9 see red."})
        return Json({"intent": "Learn what bees perceive." if "number 8" in text else FIXED})

    with FakeOpenAI(script) as fake:
        assert build_training(fake, folder.parent, "userllm") == 0
        assert len(fake.requests) == 9 + 2  # two sentences are asked for once more
        assert not any("number 0 " in request.text for request in fake.requests)
        assert build_training(fake, folder.parent, "userllm") == 0 and len(fake.requests) == 11
    out = tmp_path / "out" / "sim_rl_data" / "userllm_rl_train.parquet"
    rows = [row.row for row in read_rows([str(out)])]
    assert Counter(row.source for row in rows) == {"commonsense_qa": 16, "natural_questions": 16, "prism": 16}
    assert {row.user_id for row in rows if row.source == "prism"} == {f"u{n}" for n in range(1, 9)}
    assert {row.intent for row in rows if row.user_id == "u8"} == {"Learn what bees perceive."}
    about = card.read(out)
    assert about is not None and about.left_out[userllm_train.EVALUATED] == 1 and about.models[0].calls == 11
    assert (
        about.left_out[userllm.EVALUATED] == 2
        and about.contamination.rows == 0
        and any("copies the messages" in why for why in about.left_out)
    )
