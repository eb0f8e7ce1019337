"""The launchers' environment variables become the overrides of a run."""

import pytest

from ditto.launching.variables import rl_words, sft_words


@pytest.mark.parametrize("words_of", [lambda variables: rl_words("hitom", variables), sft_words], ids=["rl", "sft"])
def test_steps_and_devices_are_set_alike_and_other_launchers_names_are_pointed_out(
    words_of, tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    variables = {"N_GPUS": "2", "TOTAL_TRAINING_STEPS": "3", "TEST_FREQ": "-1", "SAVE_FREQ": "5"}
    model = str(tmp_path / "lr=1e-4" / "global_step_5")
    others = {"OUTPUT_DIR": str(tmp_path), "ACTOR_MODEL_PATH": model, "JUDGE_MODEL": "gpt"}
    words = words_of(variables | others)
    for word in ("n_gpus_per_node=2", "total_training_steps=3", "test_freq=-1", "save_freq=5"):
        assert f"trainer.{word}" in words
    assert any(model in word for word in words)
    assert "JUDGE_MODEL is not read by this launcher: use JUDGE_MODEL_NAME" in caplog.text
