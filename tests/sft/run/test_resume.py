"""Where supervised training goes on: decided once, before any process is started, and never at step 1 over a run."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp
from omegaconf import OmegaConf

from ditto.run import run_json
from ditto.run.checkpoint import TRACKER, partial_dir, publish
from ditto.settings import BadConfig
from recipe.demo import tiny_model
from sft.launch import main
from sft.run import ranks
from sft.run.checkpoints import BadCheckpoint, check_shared
from soul.files.folder_lock import FolderLock
from tests.sft.corpus.corpora import write


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a corpus."""
    folder = tmp_path_factory.mktemp("world")
    tiny_model.build(folder / "model", ["Where is the pear? In the box."] * 20)
    talk = [{"role": "user", "content": "Where is the pear?"}, {"role": "assistant", "content": "In the box."}]
    write(folder / "train_shard_0.parquet", [{"messages": talk}] * 4)
    return folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """What the launcher would let the processes go on from, instead of starting them."""
    chosen: list[Path | None] = []

    def run_ranks(config: object, program: object, resume_from: Path | None) -> int:
        chosen.append(resume_from)
        return 0

    monkeypatch.setattr(ranks, "run_ranks", run_ranks)
    return chosen


def save(run: Path, step: int) -> Path:
    """A checkpoint in the form of one of two processes, with little in it."""
    folder = partial_dir(run) / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    (folder / "actor" / "ranks.json").write_text("2")
    for rank in range(2):
        (folder / "actor" / f"model_world_size_2_rank_{rank}.pt").write_bytes(b"%d" % step)
    return publish(run, step)


def launch(world: Path, run: Path, *words: str) -> int:
    small = ["data.max_prompt_length=200", "data.max_response_length=50", "data.train_batch_size=2"]
    places = [f"data.dir={world}", f"model.path={world}/model", f"run.dir={run}", f"data.cache_dir={world}/cache"]
    places += ["data.default_train_role=assistant"]
    return main(["platform=cpu", *places, *small, "trainer.n_gpus_per_node=2", *words])


def test_it_goes_on_from_there_and_forgets_what_comes_again(
    world: Path, tmp_path: Path, started: list[Path | None], capsys: pytest.CaptureFixture[str]
) -> None:
    for saved in (4, 8):
        save(tmp_path, saved)
    (tmp_path / "global_step_8/actor/ranks.json").unlink()
    run_json.write_facts(tmp_path, 0, {"config": {"trainer": {"total_training_steps": 8}}})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"step": each}) + "\n" for each in range(1, 11)))
    assert launch(world, tmp_path, "trainer.total_training_steps=4") == 0 and started == [tmp_path / "global_step_4"]
    plan = capsys.readouterr().out
    assert "resumes after step 4" in plan and "set aside" in plan
    assert "8 steps in all are now 4, so the learning rate jumps" in plan
    assert "NOTHING IS LEFT TO TRAIN: 4 steps are done" in plan
    kept = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert (tmp_path / TRACKER).read_text() == "4" and kept == [1, 2, 3, 4]


def spoil(run: Path) -> None:
    for step in (4, 8):
        (run / f"global_step_{step}" / "actor" / "model_world_size_2_rank_0.pt").write_bytes(b"spoiled")


REFUSALS: dict[str, tuple[Callable[[Path], object], list[str], list[str]]] = {
    "none is whole": (spoil, [], ["global_step_8", "global_step_4", "EXPERIMENT_NAME"]),
    "disable": (lambda run: None, ["trainer.resume_mode=disable"], ["global_step_4", "EXPERIMENT_NAME"]),
}


@pytest.mark.parametrize(("prepare", "words", "named"), REFUSALS.values(), ids=REFUSALS)
def test_it_stops_before_a_process_is_started(
    world: Path,
    tmp_path: Path,
    started: list[Path | None],
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[Path], object],
    words: list[str],
    named: list[str],
) -> None:
    for step in (4, 8):
        save(tmp_path, step)
    prepare(tmp_path)
    assert launch(world, tmp_path, *words) == 2
    text = capsys.readouterr().err.strip()
    assert started == [] and len(text.splitlines()) == 1
    assert all(name in text for name in named), text


def test_a_second_start_ends_before_it_tokenises(
    world: Path, tmp_path: Path, started: list[Path | None], capsys: pytest.CaptureFixture[str]
) -> None:
    with FolderLock(tmp_path / "run"):
        assert launch(world, tmp_path / "run", f"data.cache_dir={tmp_path}/cache") == 2
        text = capsys.readouterr().err.strip()
        assert "FolderInUse" in text and "process " in text and " on host " in text and len(text.splitlines()) == 1
    assert started == [] and not (tmp_path / "cache").exists()
    assert launch(world, tmp_path / "run", "trainer.resume_mode=disable") == 0 and started == [None]


def test_only_the_node_that_holds_the_lock_removes_a_half_written_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = {"nnodes": 2, "n_gpus_per_node": 1, "default_local_dir": str(tmp_path)}
    config = OmegaConf.create({"trainer": trainer, "run": {"save_on_signal_s": 1.0}})
    partial = partial_dir(tmp_path)
    monkeypatch.setattr(ranks, "run", lambda _arguments: None)
    for variable in (ranks.stop.LAUNCHER_VARIABLE, ranks.RESUME_VARIABLE):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("NODE_RANK", "1")
    with pytest.raises(BadConfig, match="trainer.nnodes=2 without MASTER_ADDR"):
        ranks.node_rank(config)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for node, left in (("1", True), ("0", False)):
        monkeypatch.setenv("NODE_RANK", node)
        assert ranks.run_ranks(config, ["program"], None) == 0
        assert partial.exists() == left
    monkeypatch.setenv("NODE_RANK", "1")  # as a batch system may set it for purposes of its own
    config.trainer.nnodes = 1
    assert ranks.node_rank(config) == 0


def _sees_the_folder(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    check_shared(folder / "shared")
    with pytest.raises(BadCheckpoint, match=f"{socket.gethostname()} cannot see the folder of the first node"):
        check_shared(folder / f"disk_of_{rank}")
    dist.destroy_process_group()


def test_a_node_with_a_disk_of_its_own_is_named_by_every_rank(tmp_path: Path) -> None:
    mp.start_processes(_sees_the_folder, args=(tmp_path,), nprocs=2, start_method="fork")
    assert not [*(tmp_path / "shared").iterdir(), *(tmp_path / "disk_of_0").iterdir()]
