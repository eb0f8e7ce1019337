"""`python -m data.sets` on folders of sources as their authors publish them: what is built, left out and said."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from data import sets
from data.source_folders import Form
from data.sources import BUILDS, EVALUATION_SETS
from soul.evaluate.run.settings import row_sampling_order
from soul.rows.data_card import read_inside
from soul.rows.task_files import read_rows
from tests.published import lay_out_as_clones, publish
from tests.soul.samples import DATA

needs_records = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark records in {DATA} (SOUL_DATA_SOURCES)")


@pytest.fixture(autouse=True)
def _no_line_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    publish(tmp_path / "sources", DATA)
    return tmp_path / "sources"


def build(sources: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, list[str]], str]:
    """Exit code, the table (set -> state, rows, remarks) and all that was printed."""
    code = sets.main([str(sources), "--out", str(sources.parent / "out")])
    printed = capsys.readouterr().out
    table: dict[str, list[str]] = {}
    name = ""
    for cells in (
        [cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if "│" in line
    ):
        name = cells[0] or name
        if cells[0]:
            table[name] = cells[1:]
        else:
            table[name][2] += f" {cells[3]}"
    return code, table, printed


def file_of(sources: Path, name: str) -> Path:
    return sources.parent / "out" / "sim_eval_data" / f"{EVALUATION_SETS[name].file}.parquet"


@needs_records
@pytest.mark.parametrize("layout", ["folders", "clones"])
def test_folders_and_untouched_clones_give_every_set_that_has_a_builder(sources, capsys, layout):
    if layout == "clones":
        build(sources, capsys)
        by_folder = {path.name: read_rows([str(path)]) for path in (sources.parent / "out").rglob("*.parquet")}
        lay_out_as_clones(sources.parent / "clones", sources)
        sources = sources.parent / "clones"
    code, table, printed = build(sources, capsys)
    assert code == 0 and list(table) == list(EVALUATION_SETS)
    built = {name for name, (state, *_) in table.items() if state == "built"}
    alignx = ("alignx_demo", "alignx_ugc", "alignx_arbitrary", "alignx_history16")  # P-Soups tells of choices only
    without = {"behaviorchain", "socsci210", "humanllm", *alignx}
    without |= {f"humanual_{kind}" for kind in sets_without_answers()}
    assert built == set(EVALUATION_SETS) - without
    for name in built:
        rows = read_rows([str(file_of(sources, name))])
        assert {row.task.name for row in rows} == {EVALUATION_SETS[name].task}
        assert len(rows) == int(table[name][1].replace(",", ""))
        if layout == "clones":
            assert [row.row for row in rows] == [row.row for row in by_folder[file_of(sources, name).name]]
    for name in without:
        assert not file_of(sources, name).exists() and ("put " in table[name][2])
    assert "snap-stanford/humanual-book" in table["humanual_book"][2]
    assert "JinaLeejnl/AlignX-test" in table["alignx_ugc"][2]
    assert not any(name in table[of][2] for of in ("sim_math", "sim_doc") for name in ("knowledge", "preferences"))
    assert f"{len(built)} sets built, {len(without)} without a source, 0 failed" in printed


@needs_records
def test_a_set_whose_rows_stand_in_for_others_says_so_wherever_it_is_copied(sources, capsys):
    _, table, _ = build(sources, capsys)
    copied = shutil.copy(file_of(sources, "social_r1"), sources / "mine.parquet")
    card = read_inside(Path(copied))
    assert card and card.stands_in == "ToMBench stands in for ToMBench-Hard" and card.stands_in in table["social_r1"][2]
    assert card.rows == int(table["social_r1"][1].replace(",", "")) and "ToMBench_Hard" in card.where
    assert {source.name.partition("/")[0] for source in card.sources} == {"social_r1"} and len(
        card.sources[0].sha256
    ) == 64
    first = file_of(sources, "social_r1").read_bytes()
    marked = {name for name in table if table[name][0] == "built" and read_inside(file_of(sources, name)).stands_in}
    stand_ins = "social_r1 lifechoices fantom twinvoice userllm sim_math sim_doc alignx_pair"
    assert marked == set(stand_ins.split())
    build(sources, capsys)
    assert file_of(sources, "social_r1").read_bytes() == first


@needs_records
def test_chosen_sets_alone_are_built(sources, capsys):
    words = [str(sources), "--out", str(sources.parent / "out"), "--tasks", "hitom,alignx"]
    assert sets.main(words) == 0
    printed = capsys.readouterr().out
    assert [path.stem for path in sorted((sources.parent / "out").rglob("*.parquet"))] == [
        "alignx_pair_val",
        "hitom_val",
    ]
    assert "2 sets built, 4 without a source" in printed
    with pytest.raises(SystemExit, match="2"):
        sets.main([*words[:-1], "hi-tom"])
    assert "'hi-tom' is none of sotopia, coser" in capsys.readouterr().err


def sets_without_answers():
    return ("book", "chat", "email", "news", "politics")


@needs_records
def test_each_source_gives_the_rows_of_the_paper(sources, capsys):
    _, table, _ = build(sources, capsys)
    # Sotopia: both sides of every combination in one of the hard environments, and nothing else.
    hard = set(json.loads((DATA / "sotopia" / "env_ids.json").read_text())["sotopia_hard_env_id"])
    combos = [json.loads(line)["env_id"] for line in (DATA / "sotopia" / "env_agent_combo_storages.jsonl").open()]
    kept = 2 * sum(env_id in hard for env_id in combos)
    assert table["sotopia"][1:] == [
        str(kept),
        f"left out: {2 * len(combos) - kept} (the environment is not one of the hard ones)",
    ]
    # Hi-ToM: one of the two prompting types; ParaToMi: the evaluation's own questions and not the paraphrases.
    assert table["hitom"][1:] == ["6", "left out: 6 (prompting type VP: the same questions as type CoTP)"]
    questions = len((DATA / "paratomi" / "percept_tomi_sample.csv").read_text().splitlines()) - 1
    assert table["paratomi"][1:] == [str(questions), ""]
    # The paraphrased test is a file of its own, which has what Percept-ToMi has not.
    blocks = (DATA / "paratomi" / "paraphrased_tomi_test.txt").read_text().count("\t1\n")
    assert table["paratomi_paraphrased"][1:] == [f"{blocks:,}", ""]
    kinds = {
        name: {row.row.qType for row in read_rows([str(file_of(sources, name))])}
        for name in ("paratomi", "paratomi_paraphrased")
    }
    assert kinds["paratomi_paraphrased"] - kinds["paratomi"] == {"reality", "memory"}
    assert int(table["mistakes"][1]) > 0


@needs_records
def test_a_bad_source_costs_its_own_set_only(sources, capsys):
    for name, text in {"hitom/Hi-ToM_data.json": "[{", "coser/data/test/test_set.json": "[3]"}.items():
        (sources / name).unlink()
        (sources / name).write_text(text)
    replaced = sources / "lifechoices" / "motivation_dataset.json"
    replaced.unlink()
    replaced.write_text('{"Emma": 3}')
    (sources / "sotopia" / "env_ids.json").unlink()
    (sources / "mirrorbench" / "qulac_mirror.jsonl").unlink()
    code, table, printed = build(sources, capsys)
    assert code == 1 and "Traceback" not in printed
    assert "motivation_dataset.json: a shape that this builder does not expect" in table["lifechoices"][2]
    failed = {name for name, (state, *_) in table.items() if state == "failed"}
    assert failed == {"hitom", "coser", "lifechoices", "sotopia", "mirrorbench"}
    assert "Hi-ToM_data.json: not a JSON file" in table["hitom"][2]
    assert "scene 0: expected an object, got int" in table["coser"][2]
    assert "incomplete: put env_ids.json into" in table["sotopia"][2] and "sotopia-pi" in table["sotopia"][2]
    assert "incomplete: put qulac*_mirror.jsonl into" in table["mirrorbench"][2]
    assert not any(file_of(sources, name).exists() for name in failed)
    assert {name for name, (state, *_) in table.items() if state == "built"} == {
        *("userllm", "fantom", "paratomi", "paratomi_paraphrased", "mistakes", "twinvoice", "social_r1"),
        *("sim_math", "sim_doc", "humanual_opinion", "alignx_pair"),
    }


@needs_records
def test_userllm_is_not_built_without_prisms_intents(sources, capsys):
    (sources / "userllm" / "intents.jsonl").unlink()
    code, table, _ = build(sources, capsys)
    state, _, remark = table["userllm"]
    assert code == 1 and state == "failed" and "put intents.jsonl into" in remark
    assert "python -m data.userllm intents" in remark and not file_of(sources, "userllm").exists()


def test_without_any_source_the_table_says_what_to_put_where(tmp_path, capsys):
    (tmp_path / "sources" / "hi-tomato").mkdir(parents=True)
    (tmp_path / "sources" / "hi-tomato" / "data.json").write_text("[]")
    code, table, _ = build(tmp_path / "sources", capsys)
    assert code == 2 and {state for state, *_ in table.values()} == {"no source"}
    assert "Hi-ToM_data.json into" in table["hitom"][2] and "Apache-2.0" in table["hitom"][2]


def test_the_better_form_of_a_source_is_taken(tmp_path):
    folder = tmp_path / "fantom"
    folder.mkdir()
    csv = folder / "FANToM_tom:belief:inaccessible_short_context_first-order.csv"
    full = folder / "FANToM_tom:belief:inaccessible_full_context_first-order.csv"
    for path in (csv, full):
        path.touch()
    assert BUILDS["fantom"].find(tmp_path).files == (csv,)
    (folder / "fantom_v1.json").touch()
    found = BUILDS["fantom"].find(tmp_path)
    assert found.files == (folder / "fantom_v1.json",) and BUILDS["fantom"].options == ("--test-conversations", "18")


def test_all_dimensions_of_twinbench_are_no_stand_in(tmp_path):
    for number in (1, 2, 3):
        assert (BUILDS["twinvoice"].find(tmp_path).form or Form((), "?")).stands_in
        (tmp_path / "TwinBench" / "dataset" / f"dimension_{number}").mkdir(parents=True)
        (tmp_path / "TwinBench" / "dataset" / f"dimension_{number}" / "rows.jsonl").write_text('{"choices": []}')
    found = BUILDS["twinvoice"].find(tmp_path)
    assert found.form is not None and not found.form.stands_in and len(found.files) == 3


def test_a_test_split_goes_before_other_files_of_a_download(tmp_path):
    folder = tmp_path / "humanual-news" / "data"
    folder.mkdir(parents=True)
    for split in ("train", "val", "seen_test", "unseen_test"):
        (folder / f"{split}-00000-of-00001.parquet").touch()
    found = BUILDS["humanual_news"].find(tmp_path)
    assert [path.name.partition("-")[0] for path in found.files] == ["seen_test", "unseen_test"]
    assert found.form == Form(("**/*test*.parquet",)) and BUILDS["humanual_news"].options == ("--set", "news")


@needs_records
def test_a_draw_has_the_papers_strata(sources, capsys):
    build(sources, capsys)
    for name, kind, want in (
        ("userllm", "source", {"commonsense_qa": 33.3, "natural_questions": 33.3, "prism": 33.3}),
        ("coser", "books", None),
        ("mirrorbench", "dataset", None),
        ("fantom", "question", None),
    ):
        rows = read_rows([str(file_of(sources, name))])
        drawn = [rows[i] for i in row_sampling_order(rows, f"0:{name}")[:100]]
        counts, whole = (Counter(row.task.groups(row.row)[kind] for row in part) for part in (drawn, rows))
        want = want or {value: len(drawn) * count / len(rows) for value, count in whole.items()}
        assert counts.total() == min(100, len(rows))
        assert set(counts) == set(want) and all(abs(counts[value] - want[value]) <= 1 for value in want), (name, counts)
