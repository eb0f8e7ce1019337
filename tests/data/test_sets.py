"""`python -m data.sets` on folders of sources as their authors publish them: what is built, left out and said."""

import io
import json
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from data import sets
from data.sources import BUILDS, EVALUATION_SETS
from soul.rows.data_card import read_inside
from soul.rows.task_files import TaskRow, read_rows
from tests.data.source_files import table_of
from tests.published import lay_out_as_clones, publish
from tests.soul.samples import DATA

WITHOUT = {"behaviorchain", "socsci210", "humanllm"}
WITHOUT |= {"alignx_demo", "alignx_ugc", "alignx_arbitrary", "alignx_history16"}  # P-Soups tells of choices only
WITHOUT |= {f"humanual_{kind}" for kind in ("book", "chat", "email", "news", "politics")}


class Built(NamedTuple):
    """What one run of the command printed, and where its files are."""

    sources: Path
    out: Path
    code: int
    table: dict[str, list[str]]  # set -> state, rows, remarks
    printed: str

    def file(self, name: str) -> Path:
        return sets.evaluation_file(self.out, name)

    def rows(self, name: str) -> list[TaskRow]:
        return read_rows([str(self.file(name))])

    def states(self, state: str) -> set[str]:
        return {name for name, (found, *_) in self.table.items() if found == state}


def build(sources: Path, out: Path, *words: str) -> Built:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", "2000")  # no line is folded
        code = sets.main([str(sources), "--out", str(out), *words])
    return Built(sources, out, code, table_of(printed.getvalue()), printed.getvalue())


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All records that there are, in folders with the sets' names."""
    if not DATA.is_dir():
        pytest.skip(f"no benchmark records in {DATA} (SOUL_DATA_SOURCES)")
    folder = tmp_path_factory.mktemp("sets") / "sources"
    publish(folder, DATA)
    return folder


@pytest.fixture(scope="module")
def built(sources: Path) -> Built:
    return build(sources, sources.parent / "out")


def test_every_set_that_has_a_source_is_built(built: Built) -> None:
    assert built.code == 0 and list(built.table) == list(EVALUATION_SETS)
    assert built.states("built") == set(EVALUATION_SETS) - WITHOUT and built.states("failed") == set()
    for name in built.states("built"):
        rows = built.rows(name)
        assert {row.task.name for row in rows} == {EVALUATION_SETS[name].task}
        assert len(rows) == int(built.table[name][1].replace(",", ""))
    assert all(not built.file(name).exists() and "put " in built.table[name][2] for name in WITHOUT)
    assert "snap-stanford/humanual-book" in built.table["humanual_book"][2]
    assert not any(
        name in built.table[of][2] for of in ("sim_math", "sim_doc") for name in ("knowledge", "preferences")
    )
    assert (
        f"{len(EVALUATION_SETS) - len(WITHOUT)} sets built, {len(WITHOUT)} without a source, 0 failed" in built.printed
    )


def test_untouched_clones_give_the_same_rows(built: Built, tmp_path: Path) -> None:
    lay_out_as_clones(tmp_path / "clones", built.sources)
    clones = build(tmp_path / "clones", tmp_path / "out")
    assert clones.states("built") == built.states("built")
    for name in built.states("built"):
        assert [row.row for row in clones.rows(name)] == [row.row for row in built.rows(name)]


def test_a_set_whose_rows_stand_in_for_others_says_so_wherever_it_is_copied(built: Built, tmp_path: Path) -> None:
    card = read_inside(Path(shutil.copy(built.file("social_r1"), tmp_path / "mine.parquet")))
    _, rows, remarks = built.table["social_r1"]
    assert card and card.stands_in == "ToMBench stands in for ToMBench-Hard" and card.stands_in in remarks
    assert card.rows == int(rows.replace(",", "")) and "ToMBench_Hard" in card.where
    assert {source.name.partition("/")[0] for source in card.sources} == {"social_r1"}
    marked = {name for name in built.states("built") if read_inside(built.file(name)).stands_in}
    stand_ins = "social_r1 lifechoices fantom twinvoice sim_math sim_doc alignx_pair"
    assert marked == set(stand_ins.split())


def test_chosen_sets_alone_are_built_and_again_with_the_same_bytes(
    built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = build(built.sources, tmp_path / "out", "--tasks", "hitom,alignx")
    files = sorted((tmp_path / "out").rglob("*.parquet"))
    assert [path.stem for path in files] == ["alignx_pair_val", "hitom_val"]
    assert "2 sets built, 4 without a source" in again.printed
    assert again.file("hitom").read_bytes() == built.file("hitom").read_bytes()
    with pytest.raises(SystemExit, match="2"):
        sets.main([str(built.sources), "--tasks", "hi-tom"])
    assert "'hi-tom' is none of sotopia, coser" in capsys.readouterr().err


def test_each_source_gives_the_rows_of_the_paper(built: Built) -> None:
    table = built.table
    # Sotopia: both sides of every combination in one of the hard environments, and nothing else.
    hard = set(json.loads((DATA / "sotopia" / "env_ids.json").read_text())["sotopia_hard_env_id"])
    combos = [json.loads(line)["env_id"] for line in (DATA / "sotopia" / "env_agent_combo_storages.jsonl").open()]
    kept = 2 * sum(env_id in hard for env_id in combos)
    left = f"left out: {2 * len(combos) - kept} (the environment is not one of the hard ones)"
    assert table["sotopia"][1:] == [str(kept), left]
    # Hi-ToM: one of the two prompting types; ParaToMi: the evaluation's own questions and not the paraphrases.
    assert table["hitom"][1:] == ["6", "left out: 6 (prompting type VP: the same questions as type CoTP)"]
    questions = len((DATA / "paratomi" / "percept_tomi_sample.csv").read_text().splitlines()) - 1
    assert table["paratomi"][1:] == [str(questions), ""]
    # The paraphrased test is a file of its own, which has what Percept-ToMi has not.
    blocks = (DATA / "paratomi" / "paraphrased_tomi_test.txt").read_text().count("\t1\n")
    assert table["paratomi_paraphrased"][1:] == [f"{blocks:,}", ""]
    kinds = {name: {row.row.qType for row in built.rows(name)} for name in ("paratomi", "paratomi_paraphrased")}
    assert kinds["paratomi_paraphrased"] - kinds["paratomi"] == {"reality", "memory"}
    assert int(table["mistakes"][1]) > 0


def test_a_bad_source_costs_its_own_set_only(sources: Path, tmp_path: Path) -> None:
    bad = tmp_path / "sources"
    for folder in ("hitom", "coser", "lifechoices", "sotopia", "mirrorbench", "userllm", "paratomi"):
        shutil.copytree(sources / folder, bad / folder)
    (bad / "hitom" / "Hi-ToM_data.json").write_text("[{")
    (bad / "coser" / "data" / "test" / "test_set.json").write_text("[3]")
    (bad / "lifechoices" / "motivation_dataset.json").write_text('{"Emma": 3}')
    for gone in ("sotopia/env_ids.json", "mirrorbench/qulac_mirror.jsonl", "userllm/intents.jsonl"):
        (bad / gone).unlink()
    found = build(bad, tmp_path / "out")
    remarks = {name: cells[2] for name, cells in found.table.items()}
    assert found.code == 1 and "Traceback" not in found.printed
    assert found.states("failed") == {"hitom", "coser", "lifechoices", "sotopia", "mirrorbench", "userllm"}
    assert "motivation_dataset.json: a shape that this builder does not expect" in remarks["lifechoices"]
    assert "Hi-ToM_data.json: not JSON" in remarks["hitom"]
    assert "scene 0: a shape that this builder does not expect" in remarks["coser"]
    assert "incomplete: put env_ids.json into" in remarks["sotopia"] and "sotopia-pi" in remarks["sotopia"]
    assert "incomplete: put qulac*_mirror.jsonl into" in remarks["mirrorbench"]
    assert "put intents.jsonl into" in remarks["userllm"] and "python -m data.userllm intents" in remarks["userllm"]
    assert not any(found.file(name).exists() for name in found.states("failed"))
    assert found.states("built") == {"paratomi", "paratomi_paraphrased"}


def test_without_any_source_the_table_says_what_to_put_where(tmp_path: Path) -> None:
    (tmp_path / "sources" / "hi-tomato").mkdir(parents=True)
    (tmp_path / "sources" / "hi-tomato" / "data.json").write_text("[]")
    found = build(tmp_path / "sources", tmp_path / "out")
    assert found.code == 2 and {state for state, *_ in found.table.values()} == {"no source"}
    assert "Hi-ToM_data.json into" in found.table["hitom"][2] and "Apache-2.0" in found.table["hitom"][2]


@pytest.mark.parametrize(
    ("name", "beside", "taken"),
    [
        (
            "fantom",
            ["fantom/FANToM_tom:belief:inaccessible_full_context_first-order.csv"],
            ["fantom/FANToM_tom:belief:inaccessible_short_context_first-order.csv"],
        ),
        (
            "fantom",
            ["fantom/FANToM_tom:belief:inaccessible_short_context_first-order.csv"],
            ["fantom/fantom_v1.json"],
        ),
        (
            "humanual_news",
            [f"humanual-news/data/{split}-0.parquet" for split in ("train", "val")],
            [f"humanual-news/data/{split}_test-0.parquet" for split in ("seen", "unseen")],
        ),
        ("twinvoice", [], [f"TwinBench/dataset/dimension_{number}/rows.jsonl" for number in (1, 2, 3)]),
    ],
)
def test_the_better_form_of_a_source_is_taken(tmp_path: Path, name: str, beside: list[str], taken: list[str]) -> None:
    for file in (*beside, *taken):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = BUILDS[name].find(tmp_path)
    assert found.form is not None and found.files == tuple(tmp_path / file for file in taken)
    assert bool(found.form.stands_in) == taken[0].endswith(".csv")
    (tmp_path / taken[-1]).unlink()
    less = BUILDS[name].find(tmp_path).form
    assert less is None or less.stands_in or name == "humanual_news"
