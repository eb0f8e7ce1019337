"""The generative test reads the task files that the preflight read, whatever the training's own variables say."""

from pathlib import Path

import pytest

from sft.run.soul_probe import GenerativeTest
from soul.examples.command import write
from tests.soul.evaluate.vllm_replaced import model


def test_the_corpus_folder_is_not_where_the_sets_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DATA_DIR is the corpus of run_sft.sh, and the evaluation would look for the task files in it."""
    monkeypatch.chdir(tmp_path)
    write(["hitom"], 2, tmp_path / "data/sim_eval_data/hitom_val.parquet")
    (tmp_path / "corpus").mkdir()
    model(tmp_path / "model", b"weights")
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "corpus"))
    monkeypatch.setattr(GenerativeTest, "_numbers", lambda *_: {})  # a dry run has no results
    plan = GenerativeTest(["hitom"], tmp_path / "rl_test", ["--limit", "2", "--dry-run", "--no-preflight"])
    assert plan.run(tmp_path / "model", 1) == {"val/rl_test_failed": 0.0}
    assert "hitom" in (tmp_path / "rl_test/step_000001.log").read_text()
