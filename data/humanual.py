"""Humanual task files from records of posts and the replies that people wrote.

    python -m data.humanual convert SRC... --set opinion --out data/sim_eval_data/humanual_opinion_val.parquet

A source is a .parquet, .json or .jsonl file with the columns of the Humanual sets (snap-stanford/humanual-* on Hugging
Face): `prompt` (chat messages, their JSON, or a text), `completion` (what the person wrote), `persona`, `post_id`,
`user_id`. Fetch them yourself: the texts belong to their sources (YouTube, Amazon, Reddit, Medium, WildChat, Enron).

Posts without answers, as in the user study of github.com/zou-group/humanlm (an object: id -> {"post": text}), need
--replies FILE, a JSON object: id -> {"completion": text, "persona": text}.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows, argument
from data.reading import read_json, read_records
from data.rows import Record
from soul.errors import one_line
from soul.tasks.humanual import HumanualRow

SETS = ("book", "chat", "email", "news", "opinion", "politics")


def convert(paths: Sequence[str | Path], dataset: str = "", replies: str | Path | None = None) -> list[Record]:
    """The records of Humanual files as `extra_info` dicts, in the order of the files.

    Raises:
        ValueError: naming file, record and field.
    """
    answers = read_json(Path(replies)) if replies else {}
    if not isinstance(answers, dict):
        raise ValueError(f"{replies}: expected an object: id of a post -> completion and persona")
    raw_records = (
        (f"{path}: record {number}", raw)
        for path in map(Path, paths)
        for number, raw in enumerate(_raw_records(path, answers))
    )
    return [_record(where, index, raw, dataset) for index, (where, raw) in enumerate(raw_records)]


def _raw_records(path: Path, answers: Mapping[str, Any]) -> list[Any]:
    if path.suffix != ".json":
        return [record for _, record in read_records(path)]
    content = read_json(path)
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a list of records, or an object: id -> post")
    unanswered = [key for key in content if key not in answers]
    if unanswered:
        raise ValueError(
            f"{path}: {len(unanswered)} of {len(content)} posts have no answer by a person (the first: "
            f"{unanswered[0]}); give --replies FILE with a completion for each"
        )
    posts = [(key, {"post": post} if isinstance(post, str) else post) for key, post in content.items()]
    return [{"post_id": key, **post, **_answer(answers[key]), "prompt": post.get("post")} for key, post in posts]


def _answer(answer: Any) -> dict[str, Any]:
    return {"completion": answer} if isinstance(answer, str) else dict(answer)


def _record(where: str, index: int, raw: Any, dataset: str) -> Record:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where}: is {type(raw).__name__}, expected an object")
    for field in ("prompt", "completion"):
        if not raw.get(field):
            raise ValueError(f"{where}: field '{field}' is missing or empty")
    try:
        row = HumanualRow.model_validate({**raw, "index": index, "prompt": _with_speakers(raw), "id": ""})
    except ValueError as error:
        raise ValueError(f"{where}: {one_line(error, 300)}") from error
    post = str(raw.get("post_id") or hashlib.sha256(row.prompt.encode()).hexdigest()[:12])
    return {
        "index": index,
        "prompt": row.prompt,
        "question": row.prompt,
        "persona": row.persona,
        "completion": row.completion,
        "dataset": dataset and f"humanual-{dataset}",
        "category": row.category,
        "id": str(raw.get("id") or f"{post}:{raw.get('user_id') or index}"),
        "post": post,
    }


def _with_speakers(raw: Mapping[str, Any]) -> Any:
    """The prompt, with the user ids of a thread replaced: the person to be played becomes "you", others get numbers."""
    prompt = raw["prompt"]
    if isinstance(prompt, str) and prompt.lstrip().startswith("["):
        try:
            prompt = json.loads(prompt)
        except ValueError:
            return prompt  # a text that begins with a bracket
    if not isinstance(prompt, list) or not all(isinstance(message, Mapping) for message in prompt):
        return prompt
    names = {"assistant": "assistant", "user": "user", "system": "system"}
    if raw.get("user_id"):
        names[str(raw["user_id"])] = "you"
    messages = []
    for message in prompt:
        role = str(message.get("role") or "")
        if role not in names:
            names[role] = f"person {1 + sum(name.startswith('person ') for name in names.values())}"
        messages.append({"role": names[role], "content": message.get("content")})
    return messages


BUILDER = Builder(
    "data.humanual",
    __doc__,
    lambda args: Rows(
        convert(args.sources, args.dataset, args.replies),
        task=f"humanual-{args.dataset}" if args.dataset else "humanual",
    ),
    group="post",
    groups="posts",
    sources="SRC",
    options=[
        argument("--set", choices=SETS, default="", dest="dataset", help="which of the six sets it is"),
        argument("--replies", type=Path, help="JSON: id of a post -> completion and persona"),
    ],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
