"""Hi-ToM: gold answers against an independent tracker, the generator, and the file a task reads.

`Tracker` reads the finished text of a story and keeps one table of beliefs for every chain of agents. It
shares no code and no algorithm with `data.hitom_stories`, which searches a log of events.
"""

import itertools
import json
import re
from collections import Counter

import pandas as pd
import pytest

from data import hitom
from data.hitom_stories import generate_examples
from soul.one_turn import parse_options
from tests.data.source_files import needs
from tests.soul.samples import DATA

RECORDS = DATA / "hitom" / "Hi-ToM_data.json"
needs_records = needs(RECORDS)

# Gold answers of the benchmark that break its own rules, by sample_id. All are in stories that play in one
# room twice. In the first five the gold container never held the object, nor did anyone say so: it held
# another chapter's object.
NEVER_HELD_THE_OBJECT = {241, 261, 281, 285, 857}
CONTRADICTS_OTHER_RECORDS = {292, 296, 774, 794, 861, 881}


class Tracker:
    """Reads a story line by line; `table[chain, thing]` is where the chain of agents thinks the thing is."""

    def __init__(self, story: str) -> None:
        self.table: dict[tuple[tuple[str, ...], str], str] = {}
        self.cast: list[str] = []
        self.inside: list[str] = []
        self.left: list[str] = []
        self.room = ""
        self.kept_in: dict[str, str] = {}
        for line in story.splitlines():
            sentence = re.sub(r"^\d+ ", "", line).rstrip(".")
            for pattern, action in self.GRAMMAR:
                if matched := re.fullmatch(pattern, sentence):
                    getattr(self, action)(*matched.groups())
                    break
            else:
                raise AssertionError(f"sentence outside the grammar: {line}")

    GRAMMAR = (
        (r"(.+) entered the waiting_room", "wait"),
        (r"(.+) entered the (\w+)", "enter"),
        (r"The (\w+) is in the (\w+)", "found"),
        (r"\w+ moved the (\w+) to the (\w+)", "found"),
        (r"\w+ made no movements and stayed in the \w+ for 1 minute", "nothing"),
        (r"(\w+) exited the \w+", "leave"),
        (r"(\w+) publicly claimed that (\w+) is in the (\w+)", "claim"),
        (r"(\w+) privately told (\w+) that the (\w+) is in the (\w+)", "tell"),
        (r"\w+ (?:saw a|lost his|likes the|dislikes the) \w+", "nothing"),
    )

    def nothing(self) -> None: ...

    def wait(self, agents: str) -> None:
        assert not self.inside and re.split(", | and ", agents) == self.left

    def enter(self, agents: str, room: str) -> None:
        self.inside, self.left, self.room = re.split(", | and ", agents), [], room
        self.cast += [agent for agent in self.inside if agent not in self.cast]
        # Who comes back sees for himself where a thing of this room is now, named or not.
        for thing in [thing for thing, kept in self.kept_in.items() if kept == room]:
            for agent in self.inside:
                self.table[(agent,), thing] = self.table[(), thing]

    def found(self, thing: str, container: str) -> None:
        self.kept_in[thing] = self.room
        for length in range(5):
            for chain in itertools.permutations(self.inside, length):
                self.table[chain, thing] = container

    def leave(self, agent: str) -> None:
        self.inside.remove(agent)
        self.left.append(agent)

    def believes(self, listener: str, speaker: str) -> bool:
        seen_more = self.left[self.left.index(speaker) :]
        return listener not in seen_more

    def claim(self, speaker: str, thing: str, container: str) -> None:
        for listener in self.cast:
            if listener != speaker:
                self.tell(speaker, listener, thing, container)

    def tell(self, speaker: str, listener: str, thing: str, container: str) -> None:
        self.table[(speaker, listener), thing] = container
        if self.believes(listener, speaker):
            self.table[(listener,), thing] = self.table[(listener, speaker), thing] = container

    def answer(self, question: str) -> str | None:
        thing = re.search(r"the (\w+) (?:is\?|really\?)$", question)
        assert thing
        chain = tuple(re.findall(r"(\w+)(?: really)? thinks?\b", question))
        return self.table.get((chain, thing[1]))


@pytest.fixture(scope="module")
def benchmark() -> list[dict]:
    return json.loads(RECORDS.read_text(encoding="utf-8"))["data"]


@pytest.fixture(scope="module")
def generated() -> list[dict]:
    return generate_examples(20, seed=3)


@needs_records
def test_tracker_agrees_with_the_gold_answers_of_the_benchmark(benchmark):
    wrong = {
        r["sample_id"] for r in benchmark if Tracker(r["story"].rstrip("\n *")).answer(r["question"]) != r["answer"]
    }
    # 97.1 % with (170 of 175) and without deception (199 of 205); 100 % of the stories that visit no room
    # twice.
    assert wrong == NEVER_HELD_THE_OBJECT | CONTRADICTS_OTHER_RECORDS


def test_generated_answers_agree_with_the_tracker(generated):
    cells = Counter()
    for record in generated:
        assert record["correct_answer"] == Tracker(record["story"]).answer(record["question"]), record
        cells[record["story_length"], record["question_order"], record["deception"]] += 1
    assert cells == dict.fromkeys(itertools.product((1, 2, 3), range(5), (False, True)), 20)


def test_talk_decides_some_generated_answers(generated):
    """Guards the test above: agreement would be cheap if no answer ever hung on a claim."""
    silent = 0
    for record in generated:
        untold = "\n".join(x for x in record["story"].splitlines() if " claimed " not in x and " told " not in x)
        silent += Tracker(untold).answer(record["question"]) != record["correct_answer"]
    assert silent > 10


def test_200_stories_are_the_papers_6000_examples():
    records = generate_examples(200, 0)
    assert len(records) == 6000
    assert Counter(Counter(r["story_id"] for r in records).values()) == {30: 200}
    assert len({r["story"] for r in records}) == 1200
    places = Counter(list(parse_options(r["choices"]).values()).index(r["correct_answer"]) for r in records)
    assert len(places) == 15 and max(places.values()) < 0.12 * len(records)


def test_generation_depends_on_its_arguments_alone():
    assert generate_examples(3, 5) == generate_examples(3, 5)
    assert generate_examples(3, 5) == generate_examples(4, 5)[:90]
    assert generate_examples(3, 5) != generate_examples(3, 6)
    # Pins the random stream: other numbers would silently change every published training file.
    assert generate_examples(1, 0)[7]["question"] == "Where does Hannah think Amelia thinks the eggplant is?"


@needs_records
def test_convert_writes_the_benchmark(tmp_path, capsys):
    hitom.BUILDER.main(["convert", str(RECORDS), "--out", str(tmp_path / "all.parquet")])
    assert "rows=380" in capsys.readouterr().out
    frame = pd.read_parquet(tmp_path / "all.parquet")
    assert set(frame["data_source"]) == {"hitom"}
    first = frame["extra_info"][0]
    assert frame["prompt"][0][0] == {"role": "user", "content": first["question"]}
    assert all(re.fullmatch(r"\d+ .*\.", line) for info in frame["extra_info"] for line in info["story"].split("\n"))
    assert Counter(Counter(info["story_id"] for info in frame["extra_info"]).values()) == {5: 76}
