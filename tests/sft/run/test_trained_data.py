"""A run resumes on the data that it was trained on; a change is refused, spelled out, unless the user accepts it."""

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from recipe.demo import tiny_model
from sft.launch import config_of
from sft.preflight import data_settings, load_corpora
from sft.run.trained_data import ChangedRun, TrainedData, check_unchanged
from tests.sft.corpus.corpora import write

SHORT = [{"role": "user", "content": "Where is the pear?"}, {"role": "assistant", "content": "In the box."}]
LONG = [SHORT[0], {"role": "assistant", "content": "In the box. " * 20}]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, whose chat templates differ, and corpora."""
    folder = tmp_path_factory.mktemp("world")
    tiny_model.build(folder / "model", ["Where is the pear? In the box."] * 20)
    shutil.copytree(folder / "model", folder / "other")
    template = folder / "other" / "chat_template.jinja"
    template.write_text("Talk:\n" + template.read_text())
    rows = [{"messages": talk} for talk in (SHORT, LONG, SHORT, LONG)]
    for name, content in (("a", rows), ("moved/a", rows), ("changed/a", rows[1:])):
        (folder / name).parent.mkdir(exist_ok=True)
        write(folder / f"{name}.parquet", content)
    return folder


@pytest.fixture(scope="module")
def checkpoint(world: Path) -> Path:
    """A checkpoint's folder with the record of what it was trained on."""
    (world / "global_step_4" / "actor").mkdir(parents=True)
    trained(world).write(world / "global_step_4")
    return world / "global_step_4"


def trained(world: Path, *words: str) -> TrainedData:
    """The data of a command."""
    usual = ["data.max_prompt_length=300", "data.max_response_length=50", "data.train_batch_size=2"]
    usual.append("data.default_train_role=assistant")
    places = [f"data.train_files={world}/a.parquet", f"model.path={world}/model", f"run.dir={world}/run"]
    given = [word.format(w=world) for word in words]
    config = config_of(["platform=cpu", *places, f"data.cache_dir={world}/cache", *usual, *given])
    return TrainedData.from_run(config, data_settings(config), load_corpora(config)[0])


UNCHANGED = {
    "the same command": [],
    "a moved file": ["data.train_files={w}/moved/a.parquet"],
    "a limit that drops nothing": ["data.max_prompt_length=400"],
    "a longer run": ["trainer.total_training_steps=9000", "trainer.save_freq=5"],
}
CHANGED = {
    "the seed": (["data.seed=7"], ["data.seed was 42 and is 7"]),
    "the batch size": (["data.train_batch_size=4"], ["data.train_batch_size was 2 and is 4"]),
    "a ratio": (["data.train_files={w}/a.parquet:2"], ["a.parquet was 1 and is 2"]),
    "a file's rows": (
        ["data.train_files={w}/changed/a.parquet"],
        ["changed/a.parquet is new or has other sequences"],
    ),
    "a file more": (["data.train_files={w}/a.parquet {w}/changed/a.parquet"], ["changed/a.parquet is new or has"]),
    "the template": (
        ["model.path={w}/other"],
        ["a.parquet is new or has other", "the tokenizer with its chat template has"],
    ),
    "the lengths": (
        ["data.max_prompt_length=20"],
        ["a.parquet is new or has other", "data.max_prompt_length was 300 and is 20"],
    ),
    "the role": (
        ["data.default_train_role=human"],
        ["a.parquet is new or has other", 'data.default_train_role was "assistant" and is "human"'],
    ),
}
KEPT = {  # refused whatever the data
    "optim.lr": ("3e-05", "optim.lr was 1e-05 and is 3e-05"),
    "model.lora_rank": ("8", "model.lora_rank was 0 and is 8"),
}


@pytest.mark.parametrize("words", UNCHANGED.values(), ids=UNCHANGED)
def test_it_resumes_on_the_same_data(world: Path, checkpoint: Path, words: list[str]) -> None:
    assert check_unchanged(checkpoint, trained(world, *words), "model", accepted=False) == []


@pytest.mark.parametrize(("words", "named"), CHANGED.values(), ids=CHANGED)
def test_other_data_are_refused_until_they_are_accepted(
    world: Path, checkpoint: Path, words: list[str], named: list[str]
) -> None:
    now = trained(world, *words)
    with pytest.raises(ChangedRun) as refused:
        check_unchanged(checkpoint, now, "model", accepted=False)
    assert all(part in str(refused.value) for part in [*named, "trainer.resume_changed=true"]), refused.value
    (line,) = check_unchanged(checkpoint, now, "model", accepted=True)
    assert "CHANGED" in line


@pytest.mark.parametrize("key", KEPT)
def test_what_the_state_belongs_to_cannot_change(world: Path, checkpoint: Path, key: str) -> None:
    value, named = KEPT[key]
    with pytest.raises(ChangedRun, match=named):
        check_unchanged(checkpoint, trained(world, f"{key}={value}"), "model", accepted=True)


def test_an_adapter_alone_resumes_on_its_base(checkpoint: Path, tmp_path: Path) -> None:
    """A checkpoint with the whole model may be resumed wherever the base lies."""
    (tmp_path / "actor").mkdir()
    whole = TypeAdapter(TrainedData).validate_json((checkpoint / "actor" / "data.json").read_bytes())
    for data, allowed in ((whole, True), (replace(whole, base="mine"), True), (replace(whole, base="another"), False)):
        data.write(tmp_path)
        with nullcontext() if allowed else pytest.raises(ChangedRun, match="model.path was another and is mine"):
            assert check_unchanged(tmp_path, whole, "mine", accepted=True) == []
