"""The demo's exercises: short HiToM stories, and the mixture of people that the warm start imitates.

The world is small, so that a model with 0.6 million parameters learns it in a minute: two people, one chapter, few
names, and four containers in the same order in every story (such a model takes far longer to bind letters to shuffled
options). Only questions that a hasty reader gets wrong are kept.

The warm start imitates two kinds of people. Careful people answer with the place that the character last saw (the gold
answer). Hasty people answer with the real place, or, if the question asks for the real place, with the first one.
A `Population` says how many answers are careful: without feedback few or about half, with a coach's feedback in the
prompt most. So the policy listens to feedback before RL begins, as a big model does, and DITTO has a gap to distil. No
coach is needed at test time.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.hitom_stories import AGENTS, THINGS, StoryConfig, generate_examples
from data.rows import write_rows
from recipe.demo.coach import asked_about, critique, read_scene
from soul.message import Message
from soul.one_turn import parse_options
from soul.task import Task
from soul.tasks.hitom import HiToM
from soul.tasks.paratomi import ROOMS, ParaToMi

Record = dict[str, Any]
FEEDBACK_SHARE = 0.35  # warm-start samples with feedback
STORY_SEED = {"train": 1, "heldback": 2, "warm": 3}
ORDERS = (0, 1)
PEOPLE = 2
CAST = ("Ava", "Carter", "Emily", "Jacob", "Lily", "Noah")
SMALL_THINGS = ("apple", "carrot", "lemon", "tomato")
SMALL_ROOMS = ("bedroom", "cellar", "kitchen", "pantry")
CONTAINERS = ("green_box", "red_crate", "blue_basket", "green_bottle")
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Form:
    """A form of the exercises: a HiToM question with letters, or a ParaToMi question with places.

    The demo trains on the first; the demo of distillation trains an expert on each.

    Attributes:
        record: returns the exercise as a record of the task.
        answer: returns the content of the answer tag for a place of the exercise.
    """

    task: Task[Any]
    record: Callable[[Record], Record]
    answer: Callable[[Record, str], str]

    def prompt(self, exercise: Record, feedback: str | None = None) -> list[Message]:
        """The prompt, exactly as the task renders it."""
        return self.task.prompt(self.task.row_type.model_validate(self.record(exercise)), feedback)


def _letter(exercise: Record, place: str) -> str:
    return next(letter for letter, text in parse_options(exercise["choices"]).items() if text == place)


def _paratomi_record(exercise: Record) -> Record:
    thought = re.fullmatch(r"Where does (\w+) really think the (\w+) is\?", exercise["question"])
    return {
        "index": exercise["index"],
        "story": [re.sub(r"^\d+ ", "", line) for line in exercise["story"].splitlines()],
        "question": f"Where will {thought[1]} look for the {thought[2]}?" if thought else exercise["question"],
        "cands": list(parse_options(exercise["choices"]).values()),
        "correct_answer": exercise["correct_answer"],
        "qType": "first_order_tom" if thought else "reality",
    }


HITOM = Form(HiToM(), dict, _letter)
PARATOMI = Form(ParaToMi(), _paratomi_record, lambda _, place: place)


@dataclass(frozen=True)
class Population:
    """The people that the warm start imitates.

    Attributes:
        careful: share of careful answers without feedback.
        coached: share of careful answers with a coach's feedback in the prompt.
        told: the coach names the right place as well.
    """

    careful: float = 0.45
    coached: float = 0.85
    told: bool = False


USUAL = Population()  # of the demo of distillation
RARELY_RIGHT = Population(careful=0.06)
HARDLY_EVER_RIGHT = Population(careful=0.01)  # of the demo


@dataclass(frozen=True)
class StoryExample:
    """One warm-start sample: the prompt as generation sees it and the answer of one imitated person."""

    messages: list[Message]
    answer: str
    careful: bool
    coached: bool


def exercises(n: int, seed: int, forbidden: Iterable[str] = ()) -> list[Record]:
    """`n` records with different stories that a hasty reader gets wrong, none of them in `forbidden` (story texts)."""
    taken = set(forbidden)
    records: list[Record] = []
    for _, questions in itertools.groupby(_stream(seed), key=lambda record: record["story"]):
        wanted = ORDERS[len(records) % len(ORDERS)]  # each order equally often
        trapped = [q for q in questions if q["question_order"] == wanted and hasty_place(q) != q["correct_answer"]]
        if trapped and trapped[0]["story"] not in taken:
            taken.add(trapped[0]["story"])
            records.append(trapped[0] | {"index": len(records)})
        if len(records) == n:
            break
    return records


def hasty_place(record: Record) -> str:
    """The place that a hasty reader names: the real one, or the first one if the question asks for the real one."""
    scene = read_scene(record["story"])
    return scene.truth if asked_about(record["question"]) else scene.first


def say(record: Record, careful: bool, form: Form = HITOM) -> str:
    """One person's answer with a short reason."""
    people = asked_about(record["question"])
    place = record["correct_answer"] if careful else hasty_place(record)
    if people:
        reason = f"{people[-1]} saw it last in the {place}." if careful else f"It is now in the {place}."
    else:
        reason = f"It ended in the {place}." if careful else f"It began in the {place}."
    return f"{reason} <answer>{form.answer(record, place)}</answer>"


def _earlier(record: Record, rng: random.Random, form: Form) -> str:
    """An attempt for the coach to judge: right, hasty or at any of the places.

    It does not depend on the population. Otherwise a population that is hardly ever right would never read praise, and
    its refined answers would get worse as soon as training makes its drafts better.
    """
    places = list(parse_options(record["choices"]).values())
    place = rng.choice([record["correct_answer"], hasty_place(record), rng.choice(places)])
    return f"<answer>{form.answer(record, place)}</answer>"


def told(place: str) -> str:
    """The sentence of a coach that gives the answer away."""
    return f" It is the {place}."


def warm_sample(record: Record, rng: random.Random, form: Form = HITOM, population: Population = USUAL) -> StoryExample:
    """Draw one person's answer, with or without feedback on an earlier attempt."""
    coached = rng.random() < FEEDBACK_SHARE
    feedback = None
    if coached:
        feedback = critique(form.prompt(record)[0]["content"], record["correct_answer"], _earlier(record, rng, form))
        feedback += told(record["correct_answer"]) if population.told else ""
    careful = rng.random() < (population.coached if coached else population.careful)
    return StoryExample(form.prompt(record, feedback), say(record, careful, form), careful, coached)


def write_files(
    out_dir: str | Path, n_train: int = 600, n_heldback: int = 128, forms: Sequence[Form] = (HITOM,)
) -> list[Record]:
    """Write train.parquet and heldback.parquet; several forms get a folder each (`hitom/`, `paratomi/`).

    No two training files share a story. All forms have the same held-back stories, which are in no training file.

    Returns:
        The held-back exercises.
    """
    train = exercises(n_train * len(forms), STORY_SEED["train"])
    heldback = exercises(n_heldback, STORY_SEED["heldback"], forbidden=[r["story"] for r in train])
    for number, form in enumerate(forms):
        folder = Path(out_dir) if len(forms) == 1 else Path(out_dir) / form.task.name
        folder.mkdir(parents=True, exist_ok=True)
        part = train[number * n_train : (number + 1) * n_train]
        for name, records in (("train", part), ("heldback", heldback)):
            write_rows(folder / f"{name}.parquet", form.task.name, [form.record(record) for record in records])
    return heldback


def warm_records(n: int, heldback: Sequence[Record]) -> list[Record]:
    """Exercises for the warm start, none of them with a held-back story."""
    return exercises(n, STORY_SEED["warm"], forbidden=[r["story"] for r in heldback])


def _small_world(record: Record, rng: random.Random) -> Record:
    """The same story with names, room and thing of a small world: fewer words for so small a model to learn.

    Only names are replaced, one for one, in story and question; the events stay the same.
    """
    story, question = record["story"], record["question"]
    words, swap = set(WORD.findall(story)), dict[str, str]()
    for old_words, new_words in ((AGENTS, CAST), (THINGS, SMALL_THINGS), (ROOMS, SMALL_ROOMS)):
        present = [word for word in old_words if word in words]
        swap |= dict(zip(present, rng.sample(new_words, len(present)), strict=True))

    def swapped(text: str) -> str:
        return WORD.sub(lambda word: swap.get(word[0], word[0]), text)

    return record | {"story": swapped(story), "question": swapped(question)}


def _stream(seed: int) -> Iterator[Record]:
    """Endless records; the questions about one story follow each other."""
    for chunk in itertools.count():
        config = StoryConfig(
            agents=PEOPLE,
            options_fixed=CONTAINERS,
            distractor_probability=0.0,
            orders=ORDERS,
            lengths=(1,),
            deceptions=(False,),
        )
        for record in generate_examples(200, seed * 10_000 + chunk, config):
            # Questions about one story get the same words.
            yield _small_world(record, random.Random(f"{seed}:{chunk}:{record['story_id']}"))
