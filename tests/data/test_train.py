"""`python -m data.train`: which training files are built, what they leave out, and the card that says so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data import check, train
from data.training import building
from data.training.table import TRAINING
from ditto.launching.variables import rl_words
from soul import examples
from soul.errors import BadSettings
from soul.rows import data_card as card
from soul.rows.review import BY_HAND, Review
from soul.rows.task_files import read_rows
from tests.data.source_files import table_of, write_json
from tests.published import publish
from tests.soul.samples import DATA

needs_records = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark records in {DATA} (SOUL_DATA_SOURCES)")


@pytest.fixture(autouse=True)
def _no_line_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    publish(tmp_path / "sources", DATA)
    return tmp_path / "sources"


def build(sources: Path, capsys, *words: str) -> tuple[int, dict[str, list[str]], str]:
    """Exit code, the table (task -> cells) and all that was printed."""
    code = train.main([str(sources), "--out", str(sources.parent / "out"), *words])
    printed = capsys.readouterr().out
    return code, table_of(printed), printed


def file_of(sources: Path, name: str) -> Path:
    return building.file_of(name, sources.parent / "out")


@needs_records
def test_each_source_that_is_there_gives_a_file_with_a_card(sources, capsys):
    code, table, printed = build(sources, capsys, "--tasks", "paratomi,sotopia,lifechoices,coser")
    assert code == 0 and {cells[0] for cells in table.values()} == {"built"}
    evaluated = building.Evaluated.in_folder(sources.parent / "out", None)
    for name in table:
        file = file_of(sources, name)
        built = read_rows([str(file)])
        about = card.read(file)
        assert about is not None and about.rows == len(built) == int(table[name][1].replace(",", ""))
        assert about.groups == int(table[name][2].replace(",", "")) and about.contamination.against
        assert not evaluated.held_out.overlaps(built)
    hard = set(json.loads((DATA / "sotopia" / "env_ids.json").read_text())["sotopia_hard_env_id"])
    about = card.read(file_of(sources, "sotopia"))
    assert about is not None and about.contamination.rows == 5 * len(hard) and about.stands_in
    assert [source.name for source in about.sources][0] == "sotopia/environment_profiles.jsonl"
    # No book is on both sides, and the evaluation side is counted.
    assert "left out: 180 (in groups that are drawn for evaluation)" in table["lifechoices"][-1]
    assert "4 training files built" in printed


def test_training_shares_no_story_with_either_test_of_paratomi(tmp_path, capsys):
    def block(who: str, question: str = "Where is the hat really?") -> str:
        told = (f"{who} entered the attic.", "The hat is in the box.", f"{who} moved the hat to the crate.")
        return "".join(f"{n} {text}\n" for n, text in enumerate((*told, f"{question}\tcrate\t1"), 1))

    folder = tmp_path / "sources" / "paratomi"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text(block("Mia") + block("Ella") + block("Owen"))
    (folder / "test.txt").write_text(block("Ella").replace("moved the hat", "carried the hat"))
    story = ["Owen went into the attic.", "In the box is the hat.", "Owen put the hat into the crate."]
    row = f"\"{story}\",Where will Owen look for the hat?,\"['box', 'crate']\",crate,first_order_0_tom"
    (folder / "Percept-ToMi.csv").write_text(f"story,question,cands,answer,qType\n{row}\n")
    code, table, _ = build(tmp_path / "sources", capsys, "--tasks", "paratomi")
    assert code == 0 and table["paratomi"][1] == "1"
    (left,) = read_rows([str(file_of(tmp_path / "sources", "paratomi"))])
    assert "Mia" in left.row.story[0]
    about = card.read(file_of(tmp_path / "sources", "paratomi"))
    assert about is not None and about.contamination.rows == 2
    assert set(about.contamination.against) == {"paratomi_val.parquet", "paratomi_paraphrased_val.parquet"}


def test_a_dry_run_says_what_to_get_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "sources").mkdir()
    code, table, _ = build(tmp_path / "sources", capsys, "--dry-run")
    assert code == 0 and set(table) == set(TRAINING) and not (tmp_path / "out").exists()
    assert "generate" in table["hitom"][-1] and "put redis_json_data.json into" in table["sotopia"][-1]


SCENES = examples.load("coser")


def scene(book: str, plot: int, **fields: object) -> dict[str, object]:
    record = SCENES.record(0)
    content = json.loads(record["circumstance"]) if "circumstance" in record else dict(record)
    content |= {"book": book, "scenario": f"Scene {plot} of {book}", "i_p": plot}
    content["plot"] = {**content["plot"], "summary": f"Plot {plot} of {book}"}
    return {**content, **fields}


def test_coser_trains_on_no_book_of_the_ood_test_and_no_plot_of_the_id_test(tmp_path, capsys):
    test = [scene("Emma", 1, tag="id"), scene("Ulysses", 1, tag="ood")]
    write_json(tmp_path / "sources" / "coser" / "test" / "test_set.json", test)
    training = [scene("Emma", 1), scene("EMMA.", 2), scene("Ulysses", 7), scene("Walden", 1)]
    write_json(tmp_path / "sources" / "coser" / "full" / "books.json", training)
    code, table, _ = build(tmp_path / "sources", capsys, "--tasks", "coser")
    kept = [row.row.scenario for row in read_rows([str(file_of(tmp_path / "sources", "coser"))])]
    assert code == 0 and kept == ["Scene 2 of EMMA.", "Scene 1 of Walden"] and table["coser"][3] == "2"


def test_a_book_that_lifechoices_evaluates_is_not_in_cosers_training_file(tmp_path, capsys):
    write_json(tmp_path / "sources" / "coser" / "full" / "books.json", [scene("Emma", 1), scene("Walden", 1)])
    choice = {"Question": "What does Henry do?", "Options": ["A. Stays", "B. Leaves"], "Correct Answer": "A"}
    decision = {"character_name": "Henry", "book": "WALDEN", "input_text": "He built a hut."}
    decisions = [[{**decision, "Multiple Choice Question": choice}]]
    write_json(tmp_path / "sources" / "lifechoices" / "data.json", decisions)
    _, table, _ = build(tmp_path / "sources", capsys, "--tasks", "coser,lifechoices")
    rows = read_rows([str(file_of(tmp_path / "sources", "coser"))])
    assert [row.row.book for row in rows] == ["Emma"] and table["coser"][3] == "1"
    assert "NOT compared with the evaluation set coser" in table["coser"][-1]
    assert "drawn for --val-out" in table["lifechoices"][-1]  # one book is for evaluation, and none is left


def test_a_card_beside_another_file_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(TRAINING, "hitom", replace(TRAINING["hitom"], options=("--stories", "10")))
    (tmp_path / "sources").mkdir()
    code, _, _ = build(tmp_path / "sources", capsys, "--tasks", "hitom")
    file = building.file_of("hitom", tmp_path / "out")
    assert code == 0 and check.main([str(file)]) == 0
    assert "hitom_rl_train.parquet.card.json: 300 rows in 60 groups, built" in capsys.readouterr().out
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(Exception, match="describes another file"):
        card.read(file)


def test_generated_rows_need_no_sources_and_come_with_rows_to_validate_on(tmp_path, capsys, monkeypatch):
    small = replace(TRAINING["hitom"], options=("--stories", "4"), validation=("--stories", "1"))
    monkeypatch.setitem(TRAINING, "hitom", small)
    environment = {"DATA_DIR": str(tmp_path), "OUTPUT_DIR": str(tmp_path), "HF_HOME": str(tmp_path)}
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert train.main(["--out", str(tmp_path), "--tasks", "hitom"]) == 0
    generated = tmp_path / "sim_rl_data" / "hitom_rl_val.parquet"
    assert f"30 generated rows to validate a training run on: {generated}" in capsys.readouterr().out
    stories = [{row.row.story for row in read_rows([str(file)])} for file in sorted(generated.parent.glob("*.parquet"))]
    assert len(stories) == 2 and not set.intersection(*stories)
    assert str(generated) in " ".join(rl_words("hitom", environment))
    benchmark = tmp_path / "sim_eval_data" / "hitom_val.parquet"
    benchmark.parent.mkdir()
    benchmark.touch()  # the benchmark's own rows come first
    assert str(benchmark) in " ".join(rl_words("hitom", environment))


def test_marks_change_the_next_build_by_these_rows_alone(tmp_path, capsys):
    """A row that a person drops is left out; a row of an evaluated book stays out, whatever somebody writes."""
    test = [scene("Emma", 1, tag="ood"), scene("Walden", 1, tag="id")]
    write_json(tmp_path / "sources" / "coser" / "test" / "test_set.json", test)
    training = [scene(book, n) for book in ("Emma", "Walden") for n in range(2, 80)]
    write_json(tmp_path / "sources" / "coser" / "full" / "books.json", training)

    def built() -> tuple[list[str], dict[str, int]]:
        assert build(tmp_path / "sources", capsys, "--tasks", "coser")[0] == 0
        about = card.read(file)
        assert about is not None and about.contamination.rows == 78
        return [row.row.scenario for row in read_rows([str(file)])], about.left_out

    file = file_of(tmp_path / "sources", "coser")
    scenarios, counts = built()
    review = Review(file.parent)
    (before,) = review.about()
    assert before["rows"] == 78 == before["card"]["rows"] and before["left_out"] == {"evaluated: book": 78}
    page = review.rows(file.name, first=50)
    assert page["total"] == 78 and [one["result"]["scenario"] for one in page["rows"]] == scenarios[50:]
    beyond = review.rows(file.name, reason="evaluated: book", first=99)
    assert beyond == {"total": 78, "rows": []}
    found = review.rows(file.name, text="scene 7 OF walden")
    assert found["total"] == 1 and "Walden" in found["rows"][0]["source"]["prompt"]
    leak = review.rows(file.name, reason="evaluated: book", text="Scene 33 of")["rows"][0]["row"]
    for row, mark in ((leak, "keep"), ("none", "drop"), (leak, "maybe")):
        with pytest.raises(BadSettings, match="coser"):
            review.mark(file.name, row, mark)
    with pytest.raises(BadSettings, match="no training file"):
        review.rows("../secret.parquet")
    dropped = found["rows"][0]["row"]
    review.mark(file.name, dropped, "drop")
    forged = {"file": file.name, "row": leak, "mark": "keep"}
    (file.parent / "marks.jsonl").open("a").write(json.dumps(forged) + "\n")
    assert built() == ([one for one in scenarios if one != "Scene 7 of Walden"], {**counts, BY_HAND: 1})
    assert review.rows(file.name, reason=BY_HAND)["rows"][0]["mark"] == "drop"
    review.mark(file.name, dropped, "keep")
    assert built() == (scenarios, counts)


def test_the_page_about_data_names_every_task_folder_and_file():
    page = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()
    table = page.partition("## Training files")[2].partition("**What")[0]
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}
    for name, build in TRAINING.items():
        files = [pattern.rpartition("/")[2] for pattern in build.forms[0].files]
        assert not files or f"`{build.folders[0]}/`" in rows[name]
        assert [file for file in files if file.rstrip("*") not in rows[name]] == []


def test_rows_of_these_tasks_alone_may_be_published():
    free = {name for name, build in TRAINING.items() if {origin.licence.share for origin in build.origins} == {"yes"}}
    assert free == {"hitom", "sotopia"}
    for build in TRAINING.values():
        for origin in build.origins:
            assert (origin.licence.share == "yes") == (not origin.licence.why), origin
