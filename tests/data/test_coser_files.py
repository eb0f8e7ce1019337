"""CoSER task files: real scenes through the builder, books of the source, and what is refused or left out."""

import json

import pyarrow.parquet as pq

from data import coser
from soul.tasks.coser import CoSER
from soul.tasks.coser_stage import ENVIRONMENT
from tests.data.source_files import needs, write_json
from tests.soul.samples import DATA

TEST_SET = DATA / "coser" / "test_set_public_domain.json"
TRAINING = DATA / "coser" / "train_like_KingLear.json"
needs_records = needs(TEST_SET)
TASK = CoSER()


def book(conversations, **changes):
    """A book of ten plots, the conversations in the first one and again in the last, held-out one."""
    plot = {
        "text": "raw text of the book",
        "summary": "Ada sells the lamp.",
        "key_characters": [{"character": "Ada", "description": "A keeper.", "experience": "She regrets it."}],
        "conversation": conversations,
    }
    empty = {**plot, "conversation": []}
    datasets = {"Ada": {"profile": "Proud.", "plots": []}, "Roe": {"profile": None}}
    return {"plots": [plot, *[empty] * 8, plot], "character_datasets": datasets, **changes}


CONVERSATION = {
    "scenario": "Night on the gallery.",
    "topic": "The price of a light",
    "key_characters": [{"character": "Ada", "motivation": "Money."}],
    "dialogues": [{"character": "Ada", "message": "[x] Double it."}, {"name": "Roe", "message": "Never."}],
}


def rows_of(path):
    rows = [TASK.row_type.model_validate(info) for info in pq.read_table(path)["extra_info"].to_pylist()]
    for row in rows:
        TASK.check(row)
    return rows


# --- real records


@needs_records
def test_real_scenes_come_back_as_they_were(tmp_path, capsys):
    out = tmp_path / "val.parquet"
    coser.BUILDER.main(["convert", str(TEST_SET), str(TRAINING), "--out", str(out)])
    sources = [*json.loads(TEST_SET.read_text()), *json.loads(TRAINING.read_text())]
    rows = rows_of(out)
    assert len(rows) == len(sources) and f"rows={len(rows)}\n" in capsys.readouterr().out
    assert [row.index for row in rows] == list(range(len(rows)))
    for row, source in zip(rows, sources, strict=True):
        assert (row.book, row.scenario) == (source["book"], source["scenario"])
        assert row.plot_summary == source["plot"]["summary"]
        lines = [(line.character, line.message) for line in row.dialogues]
        assert lines == [(line["character"], line["message"]) for line in source["dialogues"]]
        assert {*row.cast} == {line["character"] for line in source["dialogues"]} - {ENVIRONMENT}
        for person in source["key_characters"]:
            assert row.motivation(person["name"]) == (person.get("motivation") or person.get("thought"))
        for name in row.cast:
            assert (source["character_profiles"].get(name) or "").strip() in row.portrait(name)
        assert TASK.row_type.model_validate(row.model_dump(mode="json")) == row


# --- the two forms of a source


def test_a_book_gives_its_training_plots(tmp_path, capsys):
    path = write_json(tmp_path / "The Salt Road.json", book([CONVERSATION]))
    (record,) = coser.convert([path]).records
    assert (record["book"], record["plot_id"]) == ("The Salt Road", "The Salt Road/0")
    circumstance = json.loads(record["circumstance"])
    assert circumstance["character_profiles"] == {"Ada": "Proud.", "Roe": ""}
    assert circumstance["plot"]["key_characters"] == [{"name": "Ada", "description": "A keeper."}]
    assert "raw text" not in str(record) and not capsys.readouterr().err
    assert len(coser.convert([write_json(tmp_path / "b.json", book([CONVERSATION], split_plot_index=10))]).records) == 2
    nothing = coser.convert([write_json(tmp_path / "c.json", book([CONVERSATION], split_plot_index=0))])
    assert nothing.records == [] and sum(nothing.left_out.values()) == 2


def test_unusable_conversations_of_a_book_are_left_out_and_named(tmp_path, capsys):
    broken = [
        {**CONVERSATION, "dialogues": [{"character": "Ada"}]},
        {**CONVERSATION, "dialogues": [{"character": "Environment", "message": "Rain."}]},
        {**CONVERSATION, "scenario": None},
    ]
    records = coser.convert([write_json(tmp_path / "a.json", book([*broken, CONVERSATION]))]).records
    assert [record["index"] for record in records] == [0]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all("plot 0, conversation" in line for line in lines)
    assert "dialogues.0.message" in lines[0] and "only the Environment speaks" in lines[1] and "scenario" in lines[2]
