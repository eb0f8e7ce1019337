"""Names of sets and checkpoints whose last part is the same."""

from pathlib import Path

from soul.evaluate.run.settings import choose_sets, short_names


def test_as_short_as_they_differ() -> None:
    paths = [("a", "b", "run"), ("a", "c", "run"), ("d", "c", "run"), ("a", "base")]
    assert short_names(paths) == ["b-run", "a-c-run", "d-c-run", "base"]
    assert short_names([("x", "run", "global_step_5")], [2]) == ["run-global_step_5"]
    assert short_names([("hitom",), ("mine", "hitom")]) == ["hitom", "mine-hitom"]
    assert short_names([]) == []


def test_two_files_of_one_name_are_two_sets(tmp_path: Path) -> None:
    files = [tmp_path / task / "heldback.parquet" for task in ("hitom", "paratomi")]
    own = tmp_path / "hitom.parquet"
    for file in (*files, own):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    found = choose_sets([*map(str, files), str(own), str(files[0])], tmp_path)
    assert found == {"hitom-heldback": files[0], "paratomi-heldback": files[1], "hitom": own}
