"""`python -m data.check`: what it counts, what it refuses, and its exit codes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import paratomi
from data.check import main, reports
from data.rows import write_rows
from soul.rows.overlap import HeldOut
from soul.rows.task_files import parse_row, read_rows
from tests.data.source_files import needs
from tests.soul.samples import DATA

HALL = {"story": "1 Mia and Tom entered the hall.", "choices": "A. box, B. crate", "correct_answer": "box"}
DEN = {**HALL, "story": "1 Mia and Tom entered the den."}
PARATOMI, FANTOM = DATA / "paratomi", sorted((DATA / "fantom").glob("*.csv"))
needs_records = needs(*FANTOM)


def questions(story: dict[str, str], *texts: str) -> list[dict[str, object]]:
    return [{"index": n, "question": text, **story} for n, text in enumerate(texts)]


def numbered(*records: dict[str, object]) -> list[dict[str, object]]:
    return [{**record, "index": number} for number, record in enumerate(records)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    asked = questions(HALL, "Where is it?", "Where  is it?", "Where was it?")
    write_rows(train, "hitom", numbered(*asked, *questions(DEN, "Where is it?")))
    write_rows(val, "hitom", questions(HALL, "Where will it be?"))
    return str(train), str(val)


def test_rows_duplicates_and_overlap_are_counted(files: tuple[str, str]) -> None:
    train, val = files
    assert main([train, "--against", val]) == 1
    (report,) = reports(train, HeldOut(read_rows([val])))
    assert (report.task, report.rows, report.duplicates) == ("hitom", 4, 1)
    # No prompt of one file is in the other; three questions are about the story of the evaluation.
    assert report.overlap is not None and list(report.overlap.rows) == [0, 1, 2] and report.overlap.groups == 1
    low, median, high = report.words
    assert 20 < low <= median <= high


def test_the_overlap_can_be_left_out(files: tuple[str, str], tmp_path: Path) -> None:
    clean = tmp_path / "out" / "clean.parquet"
    assert main([files[0], "--against", files[1], "--without-overlap", str(clean)]) == 1
    assert main([str(clean), "--against", files[1]]) == 0
    assert pq.read_table(clean).to_pylist() == pq.read_table(files[0]).to_pylist()[3:]


def test_a_story_with_a_changed_word_overlaps_if_asked(files: tuple[str, str], tmp_path: Path) -> None:
    changed, long = tmp_path / "changed.parquet", "1 Mia and Tom entered the hall.\n2 The ball is in the box."
    write_rows(
        changed, "hitom", questions({**HALL, "story": long.replace("ball", "melon").replace(".", "!")}, "Where?")
    )
    write_rows(Path(files[1]), "hitom", questions({**HALL, "story": long}, "Where?"))
    assert main([str(changed), "--against", files[1]]) == 0
    assert main([str(changed), "--against", files[1], "--near", "0.6"]) == 1


def test_rows_of_the_originals_extra_tasks_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed, clean = tmp_path / "mixed.parquet", tmp_path / "clean.parquet"
    record = questions(HALL, "Where is it?")[0]
    names = ["mmtom", "hitom", "tombench", "mmtom", "hitom", "ifbench"]
    rows = [{"data_source": name, "extra_info": {**record, "index": n}} for n, name in enumerate(names)]
    pq.write_table(pa.Table.from_pylist(rows), mixed)
    assert main([str(mixed)]) == 2
    said = capsys.readouterr().err
    assert "--without-extra" in said and "Did you mean" not in said and "row 0, field data_source: 'mmtom'" in said
    assert main([str(mixed), "--without-extra", str(clean)]) == 0
    shown = capsys.readouterr().out
    assert "2 rows; left out: 4 (no part of SOUL: ifbench 1, mmtom 2, tombench 1)" in shown
    assert [row.row.index for row in read_rows([str(clean)])] == [1, 4]
    pq.write_table(pa.Table.from_pylist(rows[:1]), mixed)
    assert main([str(mixed), "--without-extra", str(tmp_path / "none.parquet")]) == 2
    assert not (tmp_path / "none.parquet").exists()


@needs_records
def test_paraphrases_of_evaluation_stories_are_found(tmp_path: Path) -> None:
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    paratomi.BUILDER.build(["convert", str(PARATOMI / "percept_tomi_sample.csv"), "--out", str(val)])
    paratomi.BUILDER.build(["convert", str(PARATOMI / "paraphrased_tomi_test.txt"), "--out", str(train)])
    (report,) = reports(str(train), HeldOut(read_rows([str(val)])))
    # Six of the sample's twelve stories are in the part of the test file that we have; nobody else has their cast.
    assert report.overlap is not None and (len(report.overlap.rows), report.overlap.groups) == (10, 6)
    story: list[str] = []
    records: list[dict[str, object]] = []
    for line in (PARATOMI / "train_sample.txt").read_text().splitlines():
        words, tab, answer = line.partition(" ")[2].partition("\t")
        if tab:
            records.append({"story": story, "question": words, "correct_answer": answer.partition("\t")[0]})
        story = [] if tab else [*story, words]
    rows = [parse_row("paratomi", record, "train", number) for number, record in enumerate(numbered(*records))]
    assert len(rows) == 400
    assert not HeldOut(read_rows([str(val)])).overlaps(rows)
