"""SimulatorArena task files (math tutoring, document creation) from the files of its repository.

    python -m data.sim_arena convert math SRC --out data/sim_eval_data/sim_math_val.parquet
    python -m data.sim_arena convert doc SRC --out data/sim_eval_data/sim_doc_val.parquet

SRC is the folder `data/` of github.com/microsoft/SimulatorArena (MIT), or the annotation file in it. The files beside
it are used if they exist: what the person knows, notes and wishes for a document, and the features of writing and
interaction style, which the policy sees and the judge checks.

The texts of the math problems (the MATH data set) may not be redistributed, so the repository lacks them. They come
from a folder MATH beside the annotations (`MATH/test/algebra/1.json` and so on), or from annotations that the
repository's own script has restored. A row without a text names the problem's topic and concepts instead; the report
counts such rows.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows, argument
from data.reading import at, read_json, required_text
from data.rows import Record

LEVELS = {
    "k-5": "elementary school",
    "6-8": "middle school",
    "9-12": "high school",
    "undergrad": "college, not graduated",
    "grad": "graduate student",
    "research": "does research",
}
_FOLDERS = {"math": "math_tutoring", "doc": "document_creation"}  # below user_simulator_profiles/
_STYLES = {"writing_style": "How this person writes", "interaction_style": "How this person talks with the other side"}
_SIDE_FILES: dict[str, dict[str, tuple[str, ...]]] = {  # what is read beside the annotations -> its possible names
    "math": {
        "knowledge": ("knowledge_state.json",),
        "concepts": ("math_tutoring_problems_extracted_concepts.json", "extracted_concepts.json"),
    },
    "doc": {"notes": ("document_creation_user_simulator_background.json",), "preferences": ("preferences.json",)},
}


class Source:
    """The annotations of one kind of session and the files beside them."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self.file = path if path.is_file() else _annotations(kind, path)
        self.math_root = self.file.parent / "MATH"
        names = {**_SIDE_FILES[kind], **{style: (f"{style}.json",) for style in _STYLES}}
        self.side = {what: self._side_file(files) for what, files in names.items()}

    def _side_file(self, names: Sequence[str]) -> dict[str, Any]:
        """One of the files of these names, here or in the folder of profiles; empty if there is none."""
        folder = self.file.parent
        places = (folder, folder / "user_simulator_profiles" / _FOLDERS[self.kind])
        found = (place / name for place in places for name in names)
        return next((dict(read_json(path)) for path in found if path.is_file()), {})

    def find(self, what: str, keys: Sequence[str], otherwise: Any) -> Any:
        """Return what a side file holds for a conversation, under one of its keys."""
        return next((self.side[what][key] for key in keys if key in self.side[what]), otherwise)


def convert(kind: str, source: str | Path) -> list[Record]:
    """The annotated conversations of `kind` ("math" or "doc") as `extra_info` dicts, in order."""
    return _records(Source(kind, Path(source)))


def _records(source: Source) -> list[Record]:
    content = read_json(source.file)
    annotations = content["annotations"] if isinstance(content, dict) else content  # both forms exist
    return [_record(source, at(f"{source.file}: record {i}"), i, raw) for i, raw in enumerate(annotations)]


def _record(source: Source, where: str, index: int, raw: Any) -> Record:
    turns = _turns(raw)
    user_messages = [text for role, text in turns if role == "user"]
    keys, fields = (_math if source.kind == "math" else _doc)(source, where, raw)
    styles = {style: source.find(style, keys, []) for style in _STYLES}
    profile = [fields.pop("profile"), _length(user_messages)]
    profile += [_listing(_STYLES[style], traits, "Feature") for style, traits in styles.items() if traits]
    return {
        "index": index,
        **fields,
        "user_profile_text": "\n\n".join(part for part in profile if part),
        "human_user_queries": user_messages,
        "human_public_conversation": _json([{"role": role, "content": text} for role, text in turns]),
        "target_writing_style_features": _json(styles["writing_style"]),
        "target_interaction_style_features": _json(styles["interaction_style"]),
        "person": required_text(where, raw, "workerId"),
    }


def _turns(raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(role, text) of the conversation about the first problem or document; turns that are not text are left out."""
    queries, replies = raw["user_queries"], raw["ai_responses"]
    # A student may go on to a second problem in the same list. No count, or 0, means that this one did not.
    first = raw.get("problem_1_turns") or len(queries)
    turns = []
    for query, reply in zip_longest(queries[:first], replies[:first]):
        # A picture is stored as a list of paths, a failed reply as null.
        turns += [(role, text.strip()) for role, text in (("user", query), ("assistant", reply)) if _is_text(text)]
    return turns


def _math(source: Source, where: str, raw: Mapping[str, Any]) -> tuple[list[str], Record]:
    keys = [repr((raw.get("problem_id"), raw.get(person), raw.get("model"))) for person in ("workerId", "user_id")]
    concepts = source.find("concepts", [str(raw.get("problem_id"))], {}).get("extracted_concepts", [])
    topic = f"{required_text(where, raw, 'type')}, {required_text(where, raw, 'level')}"
    if concepts:
        topic += f". Concepts: {', '.join(concept['Concept Name'] for concept in concepts)}"
    problem = raw["question"].strip() if _is_text(raw.get("question")) else _problem(source, where, raw)
    profile = [f"Level: {LEVELS.get(str(raw.get('math_expertise')), 'not known')}"]
    if _is_text(raw.get("why_ask_tutor")):
        profile.append(f"Reason to ask a tutor: {raw['why_ask_tutor'].strip()}")
    for concept in source.find("knowledge", keys, {}).get("concepts", []):
        if concept["Status"] != "Not introduced":
            profile.append(f"{concept['Concept Name']}: {concept['Status'].lower()}")
    return keys, {"problem": problem, "topic": topic, "question": problem or topic, "profile": "\n".join(profile)}


def _problem(source: Source, where: str, raw: Mapping[str, Any]) -> str:
    """The problem's text from the MATH data set; "" without that data set."""
    if not source.math_root.is_dir():
        return ""
    path = source.math_root / required_text(where, raw, "question_location")
    return required_text(str(path), read_json(path), "problem")


def _doc(source: Source, where: str, raw: Mapping[str, Any]) -> tuple[list[str], Record]:
    kind, intent = required_text(where, raw, "document_type"), required_text(where, raw, "intent")
    keys = [f"{raw.get('model')}_{raw.get('workerId')}_{raw['document_type']}_{raw['intent']}"]
    wishes = source.find("preferences", keys, [])
    notes = [f"- {note['question']}\n  {note['answer']}" for note in source.find("notes", keys, [])]
    fields = {
        "document_type": kind,
        "intent": intent,
        "question": intent,
        "pre_writing_materials_text": "\n".join(notes),
        "target_document_preferences": _json(wishes),
        "profile": _listing("What this person wants of the text", wishes, "Preference") if wishes else "",
    }
    return keys, fields


def _length(messages: Sequence[str]) -> str:
    """The benchmark's own line about length: the range of words, rounded outwards to multiples of five."""
    words = [len(text.split()) for text in messages] or [0]
    return f"Length of a message: from {max(1, min(words) // 5 * 5)} to {-(-max(words) // 5) * 5} words"


def _listing(title: str, traits: Sequence[Mapping[str, str]], kind: str) -> str:
    lines = [f"- {trait[f'{kind} Name']}: {trait[f'{kind} Question Answer']}" for trait in traits]
    return "\n".join([f"{title}:", *lines])


def _annotations(kind: str, folder: Path) -> Path:
    files = sorted(folder.glob(f"{_FOLDERS[kind]}_annotations*.json"))
    if len(files) != 1:
        names = ", ".join(path.name for path in files) or "none"
        raise ValueError(
            f"{folder}: expected one file {_FOLDERS[kind]}_annotations*.json, found {names}; pass the path of the file"
        )
    return files[0]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rows(args: argparse.Namespace) -> Rows:
    source = Source(args.kind, args.source)
    records = _records(source)
    notes: list[str] = []
    stands_in: list[str] = []
    without = sum(not record["problem"] for record in records) if args.kind == "math" else 0
    if without:
        stands_in.append(f"topics stand in for the texts of {without} of {len(records)} problems")
        notes.append("for the texts, put the MATH data set beside the annotations, as the folder MATH")
    if absent := [what for what, held in source.side.items() if not held]:  # published runs show them
        stands_in.append(f"the rows lack {' and '.join(absent)}: not found beside the annotations")
    return Rows(records, notes=notes, task=f"sim_arena_{args.kind}", stands_in="; ".join(stands_in))


BUILDER = Builder(
    "data.sim_arena",
    __doc__,
    _rows,
    options=[
        argument("kind", choices=("math", "doc")),
        argument("source", type=Path, metavar="SRC", help="the repository's data folder, or a file in it"),
    ],
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
