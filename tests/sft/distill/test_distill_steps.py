"""When a step of distill.sh must run again: what counts as an input, what is kept, and what is moved aside."""

import json

import pytest

from sft.distill.steps import DONE, main
from soul.examples.__main__ import write
from soul.tasks import launch
from tests.soul.evaluate.vllm_replaced import model, write_weights


@pytest.fixture
def world(tmp_path, monkeypatch):
    for name in ("TRAIN_FILES", "BASE_MODEL_PATH", "OPENAI_BASE_URL", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    write(["hitom"], 3, tmp_path / "data" / "sim_rl_data" / f"{launch('hitom').train}.parquet")
    write(["hitom"], 1, tmp_path / "tested.parquet")
    model(tmp_path / "expert")
    return tmp_path


def begin(world, step, *inputs, words=()):
    return main(["begin", step, "--out", str(world / "out"), *inputs, "--", *words])


def run(world, step, result, *inputs, words=()):
    """Run a step that writes one file."""
    code = begin(world, step, *inputs, words=words)
    if code == 0:
        (world / "out" / result).parent.mkdir(parents=True, exist_ok=True)
        (world / "out" / result).write_text(f"{step} {inputs} {words}")
        assert main(["finish", step, "--out", str(world / "out")]) == 0
    return code


def data(world, *words, samples=8):
    expert = f"--expert=hitom={world / 'expert'}"
    inputs = (expert, "--set", str(world / "tested.parquet"), "--setting", f"SAMPLES={samples}")
    return run(world, "data", "data/train.parquet", *inputs, words=words)


def changed_expert(world, monkeypatch):
    write_weights(world / "expert" / "model.safetensors", b"trained on")


def changed_rows(world, monkeypatch):
    write(["hitom"], 2, world / "data" / "sim_rl_data" / f"{launch('hitom').train}.parquet")


def changed_evaluation(world, monkeypatch):
    write(["hitom"], 2, world / "tested.parquet")


def changed_judge(world, monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL_NAME", "gpt-6")


@pytest.mark.parametrize(
    "change, why",
    [
        (changed_expert, "expert has changed ("),
        (changed_rows, "rows of hitom has changed ("),
        (changed_evaluation, "tested.parquet has changed ("),
        (changed_judge, 'roles.judge.model has changed ("gpt-5-nano" -> "gpt-6")'),
    ],
)
def test_a_changed_input_repeats_the_step_and_keeps_the_old_result(world, monkeypatch, capsys, change, why):
    assert data(world) == 0 and data(world) == DONE
    (world / "out" / "eval-models.md").write_text("of the first data")
    old = (world / "out" / "data" / "train.parquet").read_text()
    capsys.readouterr()
    change(world, monkeypatch)
    assert data(world) == 0
    shown = capsys.readouterr().out
    assert "data: runs again: " in shown and why in shown
    replaced = world / "out" / "replaced"
    assert (replaced / "1-data" / "data" / "train.parquet").read_text() == old
    before, now = (
        json.loads((folder / "steps" / "data.json").read_text()) for folder in (replaced / "1-data", world / "out")
    )
    assert before["hash"] != now["hash"] and before["finished"] and now["finished"]
    # The table would show the old result until the last step has run.
    assert (replaced / "2-evaluation" / "eval-models.md").read_text() == "of the first data"
    assert data(world) == DONE


def test_settings_and_words_are_inputs_and_equal_rows_are_the_same_rows(world):
    assert [data(world), data(world, samples=4), data(world, "policy.top_p=0.9", samples=4)] == [0, 0, 0]
    write(["hitom"], 1, world / "tested.parquet")  # built again
    assert data(world, "policy.top_p=0.9", samples=4) == DONE


def test_a_student_depends_on_what_the_data_say_and_not_on_how_they_came_about(world):
    file = world / "out" / "data" / "train.parquet"
    inputs = ("--model", str(world / "expert"), "--file", str(file))
    data(world)
    assert run(world, "student", "student/trained", *inputs) == 0
    same = file.read_text()
    data(world, samples=4)
    file.write_text(same)
    assert run(world, "student", "student/trained", *inputs) == DONE
    file.write_text("other rows")
    assert run(world, "student", "student/trained", *inputs) == 0


def test_an_interrupted_step_continues_on_the_same_inputs_only(world, capsys):
    inputs = ("--model", str(world / "expert"), "--setting")
    half = model(world / "out" / "student") / "half"
    assert begin(world, "student", *inputs, "lr=1") == 0
    assert not half.parent.exists() and "no record says what it was made of" in capsys.readouterr().out
    half.parent.mkdir()
    half.touch()
    assert begin(world, "student", *inputs, "lr=1") == 0 and half.exists()
    assert begin(world, "student", *inputs, "lr=2", "--dry-run") == 0 and half.exists()
    assert begin(world, "student", *inputs, "lr=2") == 0 and not half.exists()


def test_a_damaged_stamp_is_named_and_keys_are_not_written(world, capsys):
    secret = "sk-" + "a1B2" * 10
    assert data(world, f"policy.extra={secret}") == 0
    stamp = world / "out" / "steps" / "data.json"
    assert secret not in stamp.read_text()
    stamp.write_text("{")
    assert data(world) == 2 and "data.json is not valid JSON" in capsys.readouterr().err
