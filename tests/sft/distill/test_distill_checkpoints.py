"""Experts that are checkpoints: each is served for as long as it is asked, and the same files are the same expert."""

import json

import pyarrow.parquet as pq
import pytest

from sft.distill.__main__ import main
from soul import examples
from soul.examples.command import write
from tests.soul.evaluate.vllm_replaced import install, model, write_weights


@pytest.fixture
def told(tmp_path, monkeypatch):
    """An environment whose `vllm` is the stand-in, and the folder in which that tells of itself."""
    monkeypatch.delenv("TRAIN_FILES", raising=False)
    return install(tmp_path, monkeypatch)


def test_checkpoints_are_served_one_after_another_and_only_if_need_be(told, tmp_path):
    rows = tmp_path / "stories.parquet"
    write(["hitom"], 8, rows)
    experts = [model(tmp_path / name, name.encode()) for name in ("first", "second")]
    words = ["--out", str(tmp_path / "out"), *[f"hitom:{rows}={expert}" for expert in experts], "--n", "2"]
    server = ["--api-key", "sk-never-written", "--seed", "7"]
    assert main([*words, "--val-share", "0", "--", *server]) == 0
    starts = [json.loads(path.read_text())["arguments"] for path in told.glob("*.json")]
    assert len(starts) == 2 and all(start[-2:] == ["--seed", "7"] for start in starts)
    asked = [json.loads(line) for line in (told / "asked.jsonl").open()]
    played = [body for body in asked if len(body["messages"][0]["content"]) > 20]
    assert len(played) == 32 and {body["temperature"] for body in played} == {1.0}
    assert {body["model"] for body in played[:16]} == {"first"} and {body["model"] for body in played[16:]} == {
        "second"
    }
    assert len({body["seed"] for body in played}) == 16  # the same for both experts: n samples of each row
    # It always says A.
    example = examples.load("hitom")
    right = {i for i in range(8) if "<answer>A<" in example.oracle(example.row(i))([])}
    kept = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert {row["row"] for row in kept} == right and len(kept) == len(right) > 0
    fingerprints = {row["fingerprint"] for row in kept}
    assert fingerprints <= {
        json.loads(p.read_text())["policy"]["checkpoint"] for p in tmp_path.glob("out/samples/*/settings.json")
    }
    assert main([*words, "--val-share", "0", "--", *server]) == 0
    assert len(list(told.glob("*.json"))) == 2, "nothing is to be sampled: no server"
    write_weights(experts[1] / "model.safetensors", b"trained on")
    assert main([*words, "--val-share", "0", "--", *server]) == 0
    assert len(list(told.glob("*.json"))) == 3
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path for path in files if b"sk-never-written" in path.read_bytes()]


def test_long_rows_are_shortened_and_still_known_as_what_they_are(told, tmp_path):
    """A word is a token here. The record of a shortened row is another one; whether it is evaluated on is not."""
    rows = tmp_path / "people.parquet"
    write(["alignx"], 4, rows)
    expert = model(tmp_path / "expert", b"weights")
    words = ["--out", str(tmp_path / "out"), f"alignx:{rows}={expert}", "--n", "1", "--max-prompt-tokens", "225"]
    assert main([*words, "--val-share", "0"]) == 0
    (journal,) = tmp_path.glob("out/samples/*/samples.jsonl")
    assert all(json.loads(line)["shortened"] for line in journal.open())
    kept = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert len(kept) > 1 and max(len(row["messages"][0]["content"].split()) for row in kept) <= 225
    write(["alignx"], max(row["row"] for row in kept), tmp_path / "eval.parquet")  # all rows before the last kept one
    assert main(["--out", str(tmp_path / "out"), "--val-share", "0", "--not-in", str(tmp_path / "eval.parquet")]) == 0
    (left,) = pq.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    assert left["row"] == max(row["row"] for row in kept)
