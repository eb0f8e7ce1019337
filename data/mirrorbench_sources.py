"""The four corpora that MirrorBench is made of, read in the forms that their authors publish, as linear dialogues.

    OASST1         *.trees.jsonl or .trees.jsonl.gz (huggingface.co/datasets/OpenAssistant/oasst1, Apache-2.0)
    Chatbot Arena  *.parquet or .jsonl with conversation_a and conversation_b (lmsys/chatbot_arena_conversations;
                   prompts CC BY 4.0, answers of models CC BY-NC 4.0)
    ClariQ         multi_turn_human_generated_data.tsv (github.com/aliannejadi/ClariQ, no licence)
    Qulac          qulac.json (github.com/aliannejadi/qulac, MIT)

The ids are those of the benchmark: the tree's, the question's with the model after "::", and "clariq-" or "qulac-"
with the row. As there, a dialogue of Arena is the winner's, one of OASST1 follows the reply that was ranked first, and
one of Qulac begins with the assistant's question. Only English is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.reading import read_csv, read_json, read_records

Turn = dict[str, str]


@dataclass(frozen=True)
class Dialogue:
    """A conversation of a person with an assistant.

    Attributes:
        topic: of the search, which ClariQ and Qulac share; "" if the corpus has none.
    """

    where: str
    dataset: str
    id: str
    turns: tuple[Turn, ...]
    topic: str = ""

    @property
    def user_turns(self) -> list[str]:
        """What the person wrote."""
        return [turn["content"] for turn in self.turns if turn["role"] == "user"]


def read(path: Path, left_out: Counter[str]) -> Iterator[Dialogue]:
    """The dialogues of a file, recognised by its name and fields.

    Args:
        left_out: counts the conversations that are not read, by reason.

    Raises:
        ValueError: the file is none of the four, or a field is missing; names place and field.
    """
    if path.suffix == ".tsv":
        dialogues = _clariq(path)
    elif path.suffix == ".json":
        dialogues = _qulac(path)
    else:
        dialogues = _records(read_records(path), left_out)
    for dialogue in dialogues:
        if not dialogue.user_turns:
            left_out[f"{dialogue.dataset}: no turn of a person"] += 1
        elif not all(turn["content"].strip() for turn in dialogue.turns):
            left_out[f"{dialogue.dataset}: an empty turn"] += 1
        else:
            yield dialogue


def _records(records: Iterator[tuple[str, Mapping[str, Any]]], left_out: Counter[str]) -> Iterator[Dialogue]:
    for where, raw in records:
        if "message_tree_id" in raw:
            yield from _oasst(where, raw, left_out)
        elif {"conversation_a", "conversation_b", "winner"} <= set(raw):
            yield from _arena(where, raw, left_out)
        else:
            raise ValueError(
                f"{where}: fields {sorted(raw)[:8]} are neither those of OASST1 (message_tree_id, prompt) nor of "
                "Chatbot Arena (conversation_a, conversation_b, winner)"
            )


def _oasst(where: str, raw: Mapping[str, Any], left_out: Counter[str]) -> Iterator[Dialogue]:
    """One path through a tree: the best-ranked reply, and the follow-up that went furthest."""
    root = raw["prompt"]
    if root.get("lang") != "en":
        left_out["oasst1: not English"] += 1
    elif raw.get("tree_state") not in (None, "ready_for_export"):
        left_out["oasst1: the tree is not ready for export"] += 1
    else:
        turns: list[Turn] = []
        message: Mapping[str, Any] | None = root
        while message is not None:
            role = "user" if message.get("role") == "prompter" else "assistant"
            turns.append({"role": role, "content": str(message.get("text") or "").strip()})
            message = _next(message)
        if len(turns) > 1:
            yield Dialogue(where, "oasst1", str(raw["message_tree_id"]), tuple(turns))
        else:
            left_out["oasst1: no reply"] += 1


def _next(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    replies = [one for one in message.get("replies") or [] if not one.get("deleted") and one.get("lang", "en") == "en"]
    if not replies:
        return None
    if message.get("role") == "prompter":
        return min(replies, key=lambda one: one["rank"] if one.get("rank") is not None else 99)
    return max(replies, key=_depth)


def _depth(message: Mapping[str, Any]) -> int:
    return 1 + max((_depth(reply) for reply in message.get("replies") or []), default=0)


def _arena(where: str, raw: Mapping[str, Any], left_out: Counter[str]) -> Iterator[Dialogue]:
    winner = str(raw["winner"])
    side = winner.removeprefix("model_")
    if raw.get("language", "English") != "English":
        left_out["chatbot_arena: not English"] += 1
    elif side not in ("a", "b") or not winner.startswith("model_"):
        left_out["chatbot_arena: no side won"] += 1
    elif (raw.get("openai_moderation") or {}).get("flagged"):
        left_out["chatbot_arena: flagged by moderation"] += 1
    else:
        turns = tuple({"role": str(t["role"]), "content": str(t["content"])} for t in raw[f"conversation_{side}"])
        yield Dialogue(where, "chatbot_arena", f"{raw['question_id']}::{raw[f'model_{side}']}", turns)


def _clariq(path: Path) -> Iterator[Dialogue]:
    for number, (where, raw) in enumerate(read_csv(path, "\t")):
        said = [{"role": "user", "content": raw["initial_request"]}]
        for pair in range(1, 4):
            if raw.get(f"question{pair}") and raw.get(f"answer{pair}"):
                said.append({"role": "assistant", "content": raw[f"question{pair}"]})
                said.append({"role": "user", "content": raw[f"answer{pair}"]})
        yield Dialogue(where, "clariq", f"clariq-{number}", tuple(said), raw["topic_id"])


def _qulac(path: Path) -> Iterator[Dialogue]:
    content = read_json(path)
    for number in content["topic_id"]:
        question, answer = (str(content[name].get(number) or "").strip() for name in ("question", "answer"))
        if question and answer:  # rows for a topic alone have neither
            turns: Sequence[Turn] = ({"role": "assistant", "content": question}, {"role": "user", "content": answer})
            yield Dialogue(
                f"{path}: row {number}", "qulac", f"qulac-{number}", tuple(turns), str(content["topic_id"][number])
            )
