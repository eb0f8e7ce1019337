"""A run resumes on the data that it was trained on; a change is refused, spelled out, unless the user accepts it."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig
from pydantic import TypeAdapter

from ditto.run.checkpoint import partial_dir, publish
from recipe.demo import tiny_model
from sft.launch import main
from sft.preflight import data_settings, load_corpora
from sft.run import ranks
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
    for name, content in (("a", rows), ("moved/a", rows), ("changed/a", rows[1:]), ("more", rows)):
        (folder / name).parent.mkdir(exist_ok=True)
        write(folder / f"{name}.parquet", content)
    return folder


@pytest.fixture(scope="module")
def run(world: Path) -> Path:
    """The folder of a run that has saved step 4, as the trainer would."""

    def saves(config: DictConfig, _program: object, _resume_from: Path | None) -> int:
        folder = partial_dir(world / "run") / "global_step_4"
        (folder / "actor").mkdir(parents=True)
        (folder / "actor" / "ranks.json").write_text("1")
        TrainedData.from_run(config, data_settings(config), load_corpora(config)[0]).write(folder)
        publish(world / "run", 4)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "run_ranks", saves)
        assert launch(world) == 0
    return world / "run"


def launch(world: Path, *words: str) -> int:
    usual = ["data.max_prompt_length=300", "data.max_response_length=50", "data.train_batch_size=2"]
    usual.append("data.default_train_role=assistant")
    places = [f"data.train_files={world}/a.parquet", f"model.path={world}/model", f"run.dir={world}/run"]
    return main(["platform=cpu", *places, f"data.cache_dir={world}/cache", *usual, *words])


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
        ["a.parquet has other sequences (3, before 4)"],
    ),
    "a file more": (["data.train_files={w}/a.parquet {w}/changed/a.parquet"], ["changed/a.parquet is new"]),
    "the same file again": (["data.train_files={w}/a.parquet {w}/more.parquet"], ["more.parquet is new"]),
    "the template": (["model.path={w}/other"], ["a.parquet has other", "the tokenizer with its chat template has"]),
    "the lengths": (["data.max_prompt_length=20"], ["a.parquet has other", "data.max_prompt_length was 300 and is 20"]),
    "the lengths, and where tokens lie": (
        ["data.max_prompt_length=20", "data.cache_dir={w}/elsewhere"],
        ["data.max_prompt_length was 300 and is 20. A resumed run"],  # the cache explains nothing
    ),
    "the role": (
        ["data.default_train_role=human"],
        ["a.parquet has other", 'data.default_train_role was "assistant" and is "human"'],
    ),
}
KEPT = {  # refused whatever the data
    "optim.lr": ("3e-05", "optim.lr was 1e-05 and is 3e-05"),
    "model.lora_rank": ("8", "model.lora_rank was 0 and is 8"),
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    chosen: list[Path | None] = []
    monkeypatch.setattr(ranks, "run_ranks", lambda _config, _program, folder: chosen.append(folder) or 0)
    return chosen


@pytest.mark.parametrize("words", UNCHANGED.values(), ids=UNCHANGED)
def test_it_resumes_on_the_same_data(world: Path, run: Path, started: list[Path | None], words: list[str]) -> None:
    assert launch(world, *(word.format(w=world) for word in words)) == 0
    assert started == [run / "global_step_4"]


@pytest.mark.parametrize(("words", "named"), CHANGED.values(), ids=CHANGED)
def test_other_data_are_refused_until_they_are_accepted(
    world: Path,
    run: Path,
    started: list[Path | None],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    named: list[str],
) -> None:
    words = [word.format(w=world) for word in words]
    assert launch(world, *words) == 2 and not started
    text = capsys.readouterr().err
    assert all(part in text for part in [*named, "trainer.resume_changed=true"]), text
    assert launch(world, *words, "trainer.resume_changed=true") == 0 and started
    assert all(part in capsys.readouterr().out for part in ["CHANGED"])


@pytest.mark.parametrize("key", KEPT)
def test_what_the_state_belongs_to_cannot_change(
    world: Path, run: Path, started: list[Path | None], capsys: pytest.CaptureFixture[str], key: str
) -> None:
    value, named = KEPT[key]
    assert launch(world, f"{key}={value}", "trainer.resume_changed=true") == 2 and not started
    assert named in capsys.readouterr().err


def test_an_adapter_alone_resumes_on_its_base(run: Path, tmp_path: Path) -> None:
    """A checkpoint with the whole model may be resumed wherever the base lies."""
    (tmp_path / "actor").mkdir()
    whole = TypeAdapter(TrainedData).validate_json((run / "global_step_4" / "actor" / "data.json").read_bytes())
    for data, allowed in ((whole, True), (replace(whole, base="mine"), True), (replace(whole, base="another"), False)):
        data.write(tmp_path)
        with nullcontext() if allowed else pytest.raises(ChangedRun, match="model.path was another and is mine"):
            assert check_unchanged(tmp_path, whole, "mine", accepted=True) == []
