"""AlignX task files: what of the user each set holds, and what must not be told."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import alignx
from data.sources import BUILDS
from soul.tasks.alignx import AlignX
from tests.data.source_files import write_json

RECORD = {
    "prompt": "How do I tell my boss?",
    "chosen": "Just say it.",
    "rejected": "Perhaps, if I may,",
    "ground_truth_persona": "Answer in a blunt manner.",
    "profile": "Likes blunt words",
    "Demographic Information": "Young.",
    "Pair-wise Comparative Feedback": [
        {"prompt": "Tea?", "chosen": "No.", "rejected": "How kind."},
        {"prompt": "Blank?", "chosen": "\u200b", "rejected": "x"},
        {"prompt": "Told?", "chosen": "No. answer in a BLUNT manner", "rejected": "x"},
        {"prompt": "How do I tell my boss?", "chosen": "Just say it.", "rejected": "x"},
    ],
    "User-Generated Content": [{"prompt": "Queues", "comment": "Hate them."}, {"prompt": "Rain", "comment": ""}],
}


def test_what_is_blank_or_tells_the_preference_is_left_out(tmp_path):
    (record,), left_out, removed, *_ = alignx.convert([write_json(tmp_path / "soup.json", [RECORD])])
    assert [pair["prompt"] for pair in json.loads(record["icl_pairs"])] == ["Tea?"]
    assert [comment["comment"] for comment in json.loads(record["ugc"])] == ["Hate them."]
    assert not left_out and removed == {
        "pairs and comments with a blank text": 2,
        "pairs that are the question itself": 1,
        "pairs that repeat the user's preference in words": 1,
    }
    assert "blunt manner" not in json.dumps(record).lower() and record["source"] == "soup:1"


@pytest.mark.parametrize(
    "name, told",
    [
        ("alignx", ("Young.", "Tea?", "Queues")),
        ("alignx_demo", ("Young.",)),
        ("alignx_pair", ("Young.", "Tea?")),
        ("alignx_ugc", ("Young.", "Queues")),
        ("alignx_arbitrary", ("Young.", "Tea?", "Queues")),
        ("alignx_history16", ("Young.", "Tea?", "Queues")),
    ],
)
def test_each_set_tells_its_own_part_of_the_user(tmp_path, name, told):
    (task,) = (cls() for cls in (AlignX, *AlignX.__subclasses__()) if cls.name == name)
    for description, record in {
        "Young.": RECORD,
        "Likes blunt words": {**RECORD, "Demographic Information": ""},  # a profile stands in for a description
    }.items():
        (row,), *_ = alignx.convert([write_json(tmp_path / "soup.json", [record])], name)
        text = task.prompt(task.row_type.model_validate(row))[0]["content"]
        wanted = {description if part == "Young." else part for part in told}
        assert {part for part in ("Young.", "Likes blunt words", "Tea?", "Queues") if part in text} == wanted


@pytest.mark.parametrize("form", ["Reddit_{}.json", "data/Reddit_{}.jsonl", "Reddit_{}.parquet"])
def test_one_file_gives_one_set_and_no_row_is_a_coin_flip(tmp_path, form):
    bare = {key: RECORD[key] for key in ("prompt", "chosen", "rejected")}
    known = {
        "DEMO": {"Demographic Information": "Young."},
        "PAIR": {"profile": "Blunt", "Pair-wise Comparative Feedback": RECORD["Pair-wise Comparative Feedback"][:1]},
        "UGC": {"User-Generated Content": RECORD["User-Generated Content"][:1]},
    }
    for word, user in known.items():
        path = tmp_path / "alignx" / form.format(word)
        path.parent.mkdir(parents=True, exist_ok=True)
        records = [{**bare, **user, "prompt": f"{word} one?"}, {**bare, "prompt": "nobody?"}]
        if path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(records), path)
        else:
            path.write_text("\n".join(map(json.dumps, records)) if path.suffix == ".jsonl" else json.dumps(records))
    for word in known:
        name = f"alignx_{word.lower()}"
        build = BUILDS[name]
        match = build.find(tmp_path)
        assert match.form is not None and [file.stem for file in match.files] == [f"Reddit_{word}"]
        built = alignx.BUILDER.build(build.arguments(match, tmp_path / "out.parquet"))
        (row,) = pq.read_table(tmp_path / "out.parquet")["extra_info"].to_pylist()
        assert row["raw_prompt"] == f"{word} one?" and sum(built.left_out.values()) == 1
    words = [str(next((tmp_path / "alignx").rglob("Reddit_DEMO*"))), "--out", str(tmp_path / "out.parquet")]
    with pytest.raises(ValueError, match=r"no row is left: 2 \(without earlier comments\)"):
        alignx.BUILDER.build(["convert", *words, "--set", "alignx_ugc"])
    assert BUILDS["alignx_history16"].find(tmp_path).form is None
