"""TwinVoice task files: as published."""

import json

from data import twinvoice

GOLD = "I never liked the sea, and I never shall."
CHOICE = {
    "chunk_id": "00020",
    "speaker": "Ada",
    "speaker_match_key": "Ada Brook",
    "context": "They stood at the harbour. The wind blew hard. Bo asked what she thought of it.",
    "mcq": {
        "options": {"A": "How lovely it is!", "B": GOLD, "C": "Shall we row?", "D": "The wind is cold."},
        "answer": "B",
    },
    "source_novel": "The Weir",
}
PROFILES = {
    "characterList": {
        "CHAR_1": {
            "NameCanonical": "Ada Brook",
            "Personality Traits": ["proud"],
            "Motivation and Goals": ["keep the mill"],
            "Additional Details": {"Occupation": "miller"},
            "UtteranceHistory": [
                {"chunk_id": "00030", "utterance": "That was later."},
                {"chunk_id": "100", "utterance": "And that too."},
                {"chunk_id": None, "utterance": "Nobody knows when."},
                {"chunk_id": "1", "utterance": "The mill is mine."},
                {"chunk_id": "00002", "utterance": "I never liked the sea and I never shall"},
                {"chunk_id": "00003", "utterance": "Never."},
            ],
        }
    }
}
SOCIAL = {
    "user_id": "u1",
    "history": ["ugh, mondays", "stairs? nope, not ever in my life"],
    "anchor_post": "The office moves.",
    "choices": ["How exciting!", "Stairs? Nope, not ever in my life!", "I shall miss it.", "When?"],
    "answer_idx": 1,
}


def write(folder, *choices, profiles=PROFILES):
    (folder / "choices.jsonl").write_text("\n".join(json.dumps(choice) for choice in choices))
    (folder / "profiles.jsonl").write_text(json.dumps(profiles, indent=1))
    return [folder / "choices.jsonl", folder / "profiles.jsonl"]


def test_a_row_is_as_published_with_the_last_thirty_lines_of_the_history(tmp_path):
    said = [{"chunk_id": str(number), "utterance": f"Line {number}."} for number in range(1, 20)]
    said += [{"chunk_id": "19", "utterance": GOLD}, *({"chunk_id": "19", "utterance": f"{n}"} for n in range(15))]
    profiles = {"characterList": {"C": {"NameCanonical": "Ada Brook", "UtteranceHistory": said}}}
    leak = {**CHOICE, "context": f"Bo laughed. “{GOLD}”"}
    (record,), *_ = twinvoice.convert(write(tmp_path, leak, profiles=profiles))
    history = json.loads(record["conversation_history"])
    assert (
        len(history) == 30 and GOLD in history and history[0] == "Line 6." and record["anchor_post"] == leak["context"]
    )
    (tmp_path / "d.jsonl").write_text(json.dumps({**SOCIAL, "history": [*map(str, range(30)), SOCIAL["choices"][1]]}))
    (record,), *_ = twinvoice.convert([tmp_path / "d.jsonl"])
    assert json.loads(record["conversation_history"]) == [*map(str, range(1, 30)), SOCIAL["choices"][1]]


def test_a_character_is_known_by_traits_and_by_what_was_said_before(tmp_path):
    for order in (1, -1):
        (record,), *_ = twinvoice.convert(write(tmp_path, CHOICE)[::order])
        said = json.loads(record["conversation_history"])
        assert said == ["The mill is mine.", "I never liked the sea and I never shall", "Never."]
        assert record["persona"] == "Traits: proud\nGoals: keep the mill\nDetails: Occupation: miller"
        assert (record["speaker"], record["dimension"], record["answer_idx"]) == ("Ada Brook", "3", 1)
        assert record["anchor_post"] == CHOICE["context"] and record["answer_choices"][1] == GOLD


def test_the_other_dimensions(tmp_path):
    interpersonal = {**{k: v for k, v in SOCIAL.items() if k != "anchor_post"}, "context": "Coming?", "answer_idx": 3}
    (tmp_path / "d.jsonl").write_text(f"{json.dumps(SOCIAL)}\n\n{json.dumps(interpersonal)}\n")
    records, *_ = twinvoice.convert([tmp_path / "d.jsonl"])
    assert [(r["dimension"], r["anchor_post"], r["answer_idx"]) for r in records] == [
        ("1", "The office moves.", 1),
        ("2", "Coming?", 3),
    ]
    assert json.loads(records[0]["conversation_history"]) == SOCIAL["history"] and records[0]["group"] == "u1"
