"""Humanual task files: threads with their speakers, answers joined to posts, posts kept on one side of a split."""

import json

import pandas as pd

from data import humanual
from tests.data.source_files import write_json

THREAD = [
    {"role": "poster-77", "content": "Who broke it?", "metadata": "{}"},
    {"role": "me-12", "content": "No idea.", "metadata": "{}"},
    {"role": "other-3", "content": "You did.", "metadata": "{}"},
    {"role": "poster-77", "content": "Did you?", "metadata": "{}"},
]
RECORD = {"prompt": THREAD, "completion": "Yes, sorry.", "persona": "Clumsy.", "post_id": "p1", "user_id": "me-12"}


def test_a_thread_names_its_speakers_and_no_ids(tmp_path):
    (record,) = humanual.convert([write_json(tmp_path / "a.json", [RECORD])], "news")
    assert record["prompt"] == "person 1: Who broke it?\n\nyou: No idea.\n\nperson 2: You did.\n\nperson 1: Did you?"
    assert record["question"] == record["prompt"] and "poster-77" not in record["prompt"]
    assert (record["completion"], record["persona"]) == ("Yes, sorry.", "Clumsy.")
    assert (record["id"], record["post"], record["dataset"]) == ("p1:me-12", "p1", "humanual-news")


def test_all_forms_of_a_file_give_the_same_rows(tmp_path):
    records = [RECORD, {**RECORD, "prompt": "Just a text", "post_id": "p2"}]
    in_json = [{**record, "prompt": json.dumps(record["prompt"])} for record in records[:1]] + records[1:]
    plain = humanual.convert([write_json(tmp_path / "a.json", records)])
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(map(json.dumps, in_json)) + "\n\n", encoding="utf-8")
    assert humanual.convert([lines]) == plain
    threads, texts = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pd.DataFrame(records[:1]).to_parquet(threads)
    pd.DataFrame(records[1:]).to_parquet(texts)
    assert humanual.convert([threads, texts]) == plain
    assert [record["index"] for record in plain] == [0, 1]


def test_without_a_post_id_equal_prompts_are_one_post(tmp_path):
    records = [{"prompt": text, "completion": "x"} for text in ("a", "a", "b")]
    posts = [record["post"] for record in humanual.convert([write_json(tmp_path / "a.json", records)])]
    assert posts[0] == posts[1] != posts[2]
