"""Read labels of people that authors have published, for the tasks whose judge can be asked about the same texts.

Nothing is downloaded: `SOURCES` says where a copy comes from, and under which licence. Raters' names and worker ids are
dropped. What people said stays apart from the text, which alone reaches a judge, as an episode of its task.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from soul.errors import BadRow, one_line
from soul.judge import Judge
from soul.judge.audit.human_labels import Label, Scores, parse
from soul.message import Message
from soul.task import Task
from soul.task_types import Episode, Row
from soul.tasks.sim_arena import SimArenaDoc
from soul.tasks.sim_arena_rows import SimDocRow
from soul.tasks.sotopia import RANGES, TURNS, Act, Encounter, Kind, Sotopia, headline_of
from soul.tasks.sotopia_row import POSITIONS, SotopiaRow

csv.field_size_limit(2**24)  # a field of sotopia-pi holds a whole dialogue


@dataclass(frozen=True)
class EpisodeLabel:
    """An episode of a task, and people's scores by metric."""

    conversation_id: str
    task: Task[Any]
    row: Row
    episode: Episode
    people: Mapping[str, Scores]
    reasons: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of the same people, in the same order
    recorded: Mapping[str, float] = field(default_factory=dict)

    async def ask(self, judge: Judge, seed: int, sample: int) -> Mapping[str, float]:
        # As members of a jury do, repeats have answers of their own in the cache.
        return (await self.task.judge(self.row, self.episode, replace(judge, member=sample))).metrics


def mirrorbench(folder: Path) -> list[Label]:
    """MirrorBench's 100 + 100 labels of one annotator, with the scores that its judge gave."""
    labels: list[Label] = []
    for kind in ("gteval", "pi_pairwise"):
        judged = {one["sample_id"]: one for one in _json(folder / f"{kind}_judge_scores.json")}
        for number, record in enumerate(_json(folder / f"{kind}_labeled.json"), 1):
            known = judged[record["sample_id"]]
            found = {"conversation_id": record["sample_id"], "judge_score": known["judge_score"]}
            if kind == "gteval":
                sides = record["real_conversation"], record["synthetic_conversation"]
                found["human_score"] = record["human_label"]
            else:
                slot = known["ground_truth_synthetic_slot"]
                a, b = record["conversation_a"], record["conversation_b"]
                sides = (b, a) if slot == "A" else (a, b)
                taken = {slot.lower(): "simulated", "tie": "tie"}
                found["human_label"] = taken.get(record["human_label"].lower(), "real")
            found["real"], found["simulated"] = sides
            labels.append(parse(found, f"{folder / kind}_labeled.json, record {number}"))
    return labels


_TURN = re.compile(r"^Turn #\d+:?[ \n,]*", re.MULTILINE)
_KINDS: Mapping[str, Kind] = {
    "said:": "speak",
    "[non-verbal communication]": "non-verbal communication",
    "[action]": "action",
    "left the conversation": "leave",
}


def sotopia(folder: Path) -> list[Label]:
    """sotopia-pi's 309 ratings of 154 dialogues, each of both people on seven dimensions, with written reasons."""
    texts = {path.stem: path for path in folder.glob("otree_project/sotopia_official_study/*/*.json")}
    ratings: dict[str, list[dict[str, str]]] = {}
    for path in _files(folder, "*_final.csv"):
        with path.open(newline="", encoding="utf-8") as lines:
            for line in csv.DictReader(lines):
                ratings.setdefault(line["pk"], []).append(line)
    labels: list[Label] = []
    for key, given in ratings.items():
        row, episode = _encounter(_json(texts[key])["rewards_prompt"], str(texts[key]))
        for number, position in enumerate(POSITIONS, 1):
            one = row.model_copy(update={"eval_position": position})
            rated = [{name: int(line[f"{name}_{number}"]) for name in RANGES} for line in given]
            people = {name: [float(scores[name]) for scores in rated] for name in RANGES}
            people["overall"] = [headline_of(scores) for scores in rated]
            reasons = {name: [line[f"{name}_reasoning_{number}"] for line in given] for name in RANGES}
            labels.append(EpisodeLabel(f"{key} {position}", Sotopia(), one, episode, people, reasons))
    return labels


def _encounter(prompt: str, where: str) -> tuple[SotopiaRow, Encounter]:
    """The encounter in the text that the authors' judge read."""
    head, *turns = _TURN.split(prompt.replace("\\'", "'"))
    found = re.search(r"^Scenario: (.*)\nParticipants: (.*) and (.*)\n((?:.|\n)*)", head, re.MULTILINE)
    if not found:
        raise ValueError(f"{where}, field rewards_prompt: no scenario, or no two participants")
    scenario, *names, about = found.groups()
    told = dict(line.split(": ", 1) for line in about.splitlines() if ": " in line)
    fields: dict[str, Any] = {"index": 0, "scenario": scenario}
    for position, name in zip(POSITIONS, names, strict=True):
        fields |= {f"{position}_{what}": told[f"{name}'s {what}"] for what in ("background", "goal")}
        fields[f"{position}_name"] = name
    acts = []
    for number, turn in enumerate(turns):
        name = next((one for one in names if turn.startswith(f"{one} ")), names[number % 2])
        rest = turn.removeprefix(name).strip()
        mark = next((mark for mark in _KINDS if rest.startswith(mark)), "")
        kind = _KINDS.get(mark, "none")
        text = rest.removeprefix(mark).strip().removeprefix('"').removesuffix('"')
        acts.append(Act(name, kind, "" if kind in ("leave", "none") else text))
    ended = "left" if acts[-1].kind == "leave" else "turn_limit" if len(acts) >= TURNS else "silence"
    return SotopiaRow.model_validate(fields), Encounter({}, ended, tuple(acts))


_SESSION = ("model", "workerId", "document_type", "intent")  # the fields in a key of SimulatorArena's profiles


def sim_arena_doc(folder: Path) -> list[Label]:
    """SimulatorArena's ratings of written documents, from 1 to 10, each by the person who wanted the document.

    People's other ratings are of the assistant or the tutor, whom no task judges.
    """
    annotations = _files(folder, "document_creation_annotations*.json")[0]  # the whole file before the benchmark's
    wishes, task, labels = _json(_files(folder, "**/preferences.json")[0]), SimArenaDoc(), list[Label]()
    for index, raw in enumerate(_json(annotations)):
        both = chain(*zip_longest(raw["user_queries"], raw["ai_responses"]))
        # A picture is stored as a list of paths, a failed reply as null.
        talk = [(("user", "assistant")[i % 2], text) for i, text in enumerate(both) if isinstance(text, str)]
        known = {
            "index": index,
            **{name: raw[name] for name in ("document_type", "intent")},
            "human_user_queries": [text for role, text in talk if role == "user"],
            "human_public_conversation": [{"role": role, "content": text} for role, text in talk],
            "target_document_preferences": wishes["_".join(raw[name] for name in _SESSION)],
        }
        row = SimDocRow.model_validate(known)
        if not task.preferences(row):
            continue  # the judge has nothing to rate the document by
        # The real session stands for the attempt: the person is the policy, and the last message is the document.
        said = [Message(role="assistant" if role == "user" else "user", content=text) for role, text in talk]
        seat = [*task.prompt(row), *said, Message(role="user", content=raw["document_history"][-1])]
        people = {"document_rating": [float(raw["overall_document_rating"])]}
        labels.append(EpisodeLabel(str(index), task, row, Episode({"policy": seat}), people))
    return labels


def _files(folder: Path, pattern: str) -> list[Path]:
    if not (found := sorted(folder.glob(pattern))):
        raise FileNotFoundError(f"there is no file {pattern}")
    return found


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


class Source(NamedTuple):
    """Published labels of one task."""

    read: Callable[[Path], list[Label]]
    where: str
    licence: str

    def __str__(self) -> str:
        return f"github.com/{self.where} ({self.licence})"

    def load(self, folder: Path) -> list[Label]:
        """Read a copy.

        Raises:
            BadRow: it is not as its authors publish it.
        """
        try:
            return self.read(folder)
        except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            problem = f"{type(error).__name__}: {one_line(error, 300)}"
            raise BadRow(f"--labels {folder}: {problem}. Give a copy as its authors publish it: {self}.") from error


_RUN = "scratch_pad/human_corr/runs/chatbot_arena_mirror-gemini-2.5-pro-user-gpt-4o-assistant-claude-4-sonnet-judge"
# Task -> its labels: a folder of a repository on github.com, at a commit that has them.
SOURCES: Mapping[str, Source] = {
    "mirrorbench": Source(mirrorbench, f"SAP/mirrorbench at 2d4b802, folder {_RUN}", "Apache-2.0"),
    "sotopia": Source(sotopia, "sotopia-lab/sotopia-pi at c8163ac, folder human_eval", "Apache-2.0"),
    "sim_arena_doc": Source(sim_arena_doc, "microsoft/SimulatorArena at e9f677c, folder data", "MIT"),
}
