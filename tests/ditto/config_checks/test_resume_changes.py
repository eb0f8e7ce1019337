"""The changes of a resumed RL run: refused, accepted, applied or shown, compared with run.json."""

import shutil
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.resume import check_changes
from ditto.launching.compose import load_config
from ditto.run import run_json
from ditto.settings import BadConfig
from ditto.verl_hooks.worker_config import resolve

MODEL, OPTIM = "actor_rollout_ref.model", "actor_rollout_ref.actor.optim"


def task_file(path: Path, rows: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"data_source": ["hitom"] * rows, "extra_info": [{"index": 0}] * rows}), path)
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has started with LoRA, and whose checkpoint of step 4 a start now finds."""
    folder = tmp_path_factory.mktemp("world")
    for name, rows in (("a", 3), ("other/a", 4), ("val", 1)):
        task_file(folder / f"{name}.parquet", rows)
    (folder / "moved").mkdir()
    shutil.copy(folder / "a.parquet", folder / "moved" / "b.parquet")
    settled = composed(folder)
    resolve(settled)
    run_json.write(settled, hosts=1)
    (folder / "run" / "global_step_4").mkdir()
    return folder


@cache
def base(world: Path) -> DictConfig:
    """The config of the first start, composed once. Leave it as it is."""
    usual = ["judge.base_url=http://127.0.0.1:9/v1", f"run.dir={world}/run", f"{MODEL}.path=models/base"]
    files = [f"data.train_files=[{world}/a.parquet]", f"data.val_files=[{world}/val.parquet]"]
    return load_config(["platform=cpu", *files, *usual, f"{MODEL}.lora_rank=4", f"{MODEL}.lora_alpha=8"])


def composed(world: Path, *words: str) -> DictConfig:
    return DictConfig(OmegaConf.merge(OmegaConf.to_container(base(world)), OmegaConf.from_dotlist(list(words))))


def lines(world: Path, *words: str) -> list[str]:
    folder = world / "run" / "global_step_4"
    first, *others = check_changes(composed(world, *words), folder)
    assert first == f"after {folder}"
    return others


def test_the_same_command_changes_nothing_whatever_its_places_are(world: Path, tmp_path: Path) -> None:
    assert lines(world) == []
    moved = [f"data.train_files=[{world}/moved/b.parquet]", f"{MODEL}.path=/elsewhere/models/base"]
    assert lines(world, *moved, "trainer.experiment_name=other", "trainer.logger=[console,file]") == []
    shutil.copytree(world / "run", tmp_path / "run")  # a run that continues another one's checkpoint
    named = [f"trainer.resume_from_path={tmp_path}/run/global_step_4", "trainer.resume_mode=resume_path"]
    config = composed(world, *named, f"run.dir={tmp_path}/new")
    assert len(check_changes(config, tmp_path / "run" / "global_step_4")) == 1


@pytest.mark.parametrize(
    "words, named",
    [
        ([f"{MODEL}.path=models/other"], f'{MODEL}.path was "models/base" and is "models/other"'),
        ([f"{MODEL}.target_modules=[q_proj]"], f'{MODEL}.target_modules was "all-linear" and is ["q_proj"]'),
        ([f"{OPTIM}.optimizer=SGD"], f'{OPTIM}.optimizer was "AdamW" and is "SGD"'),
    ],
)
def test_what_the_weights_belong_to_is_refused_whatever_is_accepted(world: Path, words: list[str], named: str) -> None:
    with pytest.raises(BadConfig) as refused:
        lines(world, *words, "trainer.resume_changed=true")
    assert named in str(refused.value) and "start a new run from its weights" in str(refused.value)


@pytest.mark.parametrize(
    "words, named",
    [
        (["algorithm.objective=rltf_sd"], "algorithm.objective was grpo and is rltf_sd"),
        (["data.seed=7"], "data.seed was "),
        (["data.train_batch_size=32"], "data.train_batch_size was "),
        (["data.mixture.weights={hitom: 0.5}"], "data.mixture.weights"),
        (["data.train_files=[{w}/other/a.parquet]"], "a.parquet (3 rows) and are a.parquet (4 rows)"),
        (["data.train_files=[{w}/a.parquet,{w}/other/a.parquet]"], "a.parquet (3 rows), a.parquet (4 rows)"),
    ],
)
def test_other_rows_must_be_accepted(world: Path, words: list[str], named: str) -> None:
    words = [word.replace("{w}", str(world)) for word in words]
    with pytest.raises(BadConfig) as refused:
        lines(world, *words)
    assert named in str(refused.value) and "trainer.resume_changed=true" in str(refused.value)
    (line,) = lines(world, *words, "trainer.resume_changed=true")
    assert line.startswith("CHANGED (trainer.resume_changed=true)") and named in line


def test_optimizer_settings_are_applied_and_the_rest_is_shown(world: Path) -> None:
    words = [f"{OPTIM}.lr=1e-6", f"{OPTIM}.betas=[0.8,0.9]", "judge.temperature=0.5", "data.max_response_length=9"]
    applied, other = lines(world, *words)
    assert applied.startswith("from the next step on: ") and f"{OPTIM}.lr was 5e-06 and is 1e-06" in applied
    assert f"{OPTIM}.betas was [0.9, 0.999] and is [0.8, 0.9]" in applied
    assert other.startswith("other than before: ") and "data.max_response_length was " in other
    assert "temperature was" in other and OPTIM not in other
    longer = [f"{OPTIM}.lr_scheduler_type=cosine", "trainer.total_training_steps=900"]
    applied, *_ = lines(world, *longer)
    assert "is 900, so the learning rate jumps to the schedule of that length" in applied


def test_a_run_of_an_older_version_is_not_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = DictConfig({"run": {"dir": str(tmp_path)}})
    assert check_changes(config, tmp_path / "global_step_4") == [f"after {tmp_path}/global_step_4"]
    assert "are not compared" in caplog.text
    assert check_changes(config, None) == []
