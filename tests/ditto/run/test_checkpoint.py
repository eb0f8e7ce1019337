"""A crash at any moment leaves a checkpoint that resume can use.

Promise under test: at any moment the tracker names a complete folder or does not exist, and the next save succeeds.
The crash is simulated before every single file-system call, those inside shutil.rmtree included.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ditto.run.checkpoint import (
    PARTIAL,
    TRACKER,
    NoCompleteCheckpoint,
    newest_complete,
    partial_dir,
    prune,
    publish,
    rename_damaged,
    saved_steps,
)

FILES = ("model.safetensors", "config.json", "actor/optim.pt", "actor/extra/rng.pt", "data.pt")
CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync")


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync is counted as a step that can crash; what it does to the disk is not what is tested."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class Crash(BaseException):
    """The machine goes down: no `except Exception` and no ignore_errors notices it."""


def write(root: Path, step: int, content: str) -> None:
    """What verl and the export leave in the partial folder."""
    folder = partial_dir(root)
    for name in FILES:
        path = folder / f"global_step_{step}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{step} {content}".encode())
    (folder / TRACKER).write_bytes(str(step).encode())  # verl's own tracker, beside its folder


def save(root: Path, step: int, keep: int | None = None, content: str = "first") -> None:
    """What the trainer does."""
    write(root, step, content)
    publish(root, step)
    prune(root, keep)


def complete(folder: Path) -> bool:
    """Every file is there, and all of one save."""
    contents = {(folder / name).read_bytes() if (folder / name).is_file() else None for name in FILES}
    return len(contents) == 1 and None not in contents


def tracked(root: Path) -> int | None:
    path = root / TRACKER
    return int(path.read_text()) if path.exists() else None


def crash_at(monkeypatch: pytest.MonkeyPatch, k: int) -> Callable[[], bool]:
    """The k-th file-system call from here on never happens; says whether there was one."""
    calls = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls > k:
                raise Crash
            return real(*args, **kwargs)

        return call

    def torn(path: Path, text: str, encoding: str = "utf-8") -> None:
        nonlocal calls
        calls += 1
        path.write_bytes(text[: len(text) // 2 if calls > k else None].encode(encoding))
        if calls > k:
            raise Crash

    for name in CALLS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(Path, "write_text", torn)
    return lambda: calls > k


Setup = Callable[[Path], None]


def nothing(root: Path) -> None:
    """A first save."""


def one_before(root: Path) -> None:
    save(root, 10)


def two_before(root: Path) -> None:
    save(root, 5)
    save(root, 10)


def renamed_but_not_tracked(root: Path) -> None:
    """An earlier crash between rename and tracker: step 20 will be trained and saved again."""
    save(root, 10)
    for name in FILES:
        path = root / "global_step_20" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"20 earlier")


def leftovers(root: Path) -> None:
    """An earlier crash while verl was writing."""
    save(root, 10)
    write(root, 20, "half")
    (root / PARTIAL / "global_step_20" / "data.pt").unlink()


def start(root: Path, keep: int | None) -> None:
    """A start that resumes from what is there, and trains and saves step 20 if that is still to be done."""
    choice = newest_complete(root)
    rename_damaged(root, choice)
    if choice.step < 20:
        save(root, 20, keep)


def crashed_at_every_call(
    root: Path, monkeypatch: pytest.MonkeyPatch, setup: Setup, keep: int | None, check: Callable[[Path], None]
) -> int:
    """Start and crash at call k, for all k; `check` looks at what is left. Returns how many k there were."""
    for k in range(1000):
        folder = root / str(k)
        setup(folder)
        with monkeypatch.context() as patch:
            crashed = crash_at(patch, k)
            try:
                start(folder, keep)
            except Crash:
                assert crashed()
        check(folder)
        if not crashed():
            assert tracked(folder) == 20
            return k
        start(folder, keep)
        assert tracked(folder) == 20 and complete(folder / "global_step_20")
        assert (folder / "global_step_20" / "data.pt").read_bytes() == b"20 first"
    raise AssertionError("the save never ended")


def tracker_is_true(root: Path) -> None:
    step = tracked(root)
    assert step is None or complete(root / f"global_step_{step}"), f"the tracker names step {step}, which is spoilt"
    for saved in saved_steps(root):
        assert complete(root / f"global_step_{saved}"), f"saved_steps lists step {saved}, which is half removed"


@pytest.mark.parametrize("keep", [None, 1, 2])
@pytest.mark.parametrize("setup", [nothing, one_before, two_before, renamed_but_not_tracked, leftovers])
def test_a_resume_finds_a_whole_checkpoint_whenever_it_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: Setup, keep: int | None
) -> None:
    """Also between the rename and the tracker's move, where the tracker names the older one."""
    steps: set[int] = set()

    def check(root: Path) -> None:
        tracker_is_true(root)
        choice = newest_complete(root)
        assert choice.folder is None or complete(choice.folder)
        assert choice.step == max(saved_steps(root), default=0) or setup is renamed_but_not_tracked  # without manifest
        steps.add(choice.step)

    assert crashed_at_every_call(tmp_path, monkeypatch, setup, keep, check) > 10
    assert steps == {0 if setup is nothing else 10, 20}


def test_the_newest_whole_checkpoint_is_taken_and_damaged_ones_are_set_aside(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        save(tmp_path, step)
    (tmp_path / "global_step_8" / "data.pt").unlink()
    (tmp_path / "global_step_6" / "actor" / "optim.pt").write_bytes(b"6 FIRST")
    (tmp_path / "global_step_6.damaged").mkdir()
    choice = newest_complete(tmp_path)
    assert choice.folder == tmp_path / "global_step_4" and choice.step == 4
    assert "lacks data.pt" in choice.skipped[tmp_path / "global_step_8"]
    assert "another content" in choice.skipped[tmp_path / "global_step_6"]
    assert tracked(tmp_path) == 8 and saved_steps(tmp_path) == [2, 4, 6, 8]  # looking changes nothing
    rename_damaged(tmp_path, choice)
    assert tracked(tmp_path) == 4 and saved_steps(tmp_path) == [2, 4]
    assert {"global_step_8.damaged", "global_step_6.damaged.2"} < {path.name for path in tmp_path.iterdir()}
    assert newest_complete(tmp_path).skipped == {}


@pytest.mark.parametrize("text", ["12", "", "garbage", "-3"])
def test_a_wrong_tracker_is_no_reason_to_begin_again(tmp_path: Path, text: str) -> None:
    (tmp_path / TRACKER).write_text(text)
    with pytest.raises(NoCompleteCheckpoint, match="never overwrites") as refused:
        newest_complete(tmp_path)
    assert refused.value.exit_code == 2 and "EXPERIMENT_NAME" in str(refused.value)
    save(tmp_path, 4)
    (tmp_path / TRACKER).write_text(text)
    choice = newest_complete(tmp_path)
    assert choice.step == 4 and len(choice.skipped) == 1
    rename_damaged(tmp_path, choice)
    assert tracked(tmp_path) == 4


def test_where_no_checkpoint_is_whole_every_reason_is_named(tmp_path: Path) -> None:
    for step in (2, 4):
        save(tmp_path, step)
        (tmp_path / f"global_step_{step}" / "data.pt").write_bytes(b"short")
    with pytest.raises(NoCompleteCheckpoint, match=r"global_step_4: .*data.pt has 5 bytes.*global_step_2: "):
        newest_complete(tmp_path)
    assert newest_complete(tmp_path / "new").folder is None


@pytest.mark.parametrize(("keep", "left"), [(None, [2, 9, 10, 100]), (0, [2, 9, 10, 100]), (1, [100]), (2, [10, 100])])
def test_pruning_goes_by_number_and_not_by_name(tmp_path: Path, keep: int | None, left: list[int]) -> None:
    for step in (100, 9, 10, 2):
        (tmp_path / f"global_step_{step}").mkdir()
    (tmp_path / "notes").mkdir()
    prune(tmp_path, keep)
    assert saved_steps(tmp_path) == left
    assert (tmp_path / "notes").exists()


def test_pruning_never_removes_what_the_tracker_names(tmp_path: Path) -> None:
    """A run continued from an older step saves step 6 while step 100 is still there."""
    save(tmp_path, 100)
    save(tmp_path, 6, keep=1)
    tracker_is_true(tmp_path)
