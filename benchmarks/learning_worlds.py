"""The conditions under which `benchmarks.learning` compares objectives: a task, people to imitate, and a judge.

A world is a folder for each seed, with train.parquet, heldback.parquet and warm/ (the model from which all arms of the
seed start), a function that answers the judge's requests, and overrides of the config. To add one, write a function
that fills a folder, and add a line to WORLDS.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.judged_world import market, sellers
from recipe.demo import coach, first_message, warm_start
from recipe.demo.stories import HARDLY_EVER_RIGHT, HITOM, PARATOMI, RARELY_RIGHT, Form, Population, told
from soul.testing import ChatRequest, Json, Reply

REVEAL = ("refine.reveal_reference=true",)  # the leak guard would take the answer out
USELESS = "Think about it once more and answer with care."


@dataclass(frozen=True)
class World:
    """The conditions of a comparison.

    Attributes:
        start: name of the folder; worlds of one name have the same rows and, for a seed, the same model to start from.
        prepare: fills a folder, given the seed of the warm start.
        judge: answers a request of a run. The answer must follow from the request's content alone: requests come in no
            fixed order, and a run must be reproducible.
        overrides: of the training config.
        one_start: all seeds start from the same model.
        environment: of a run, given the world's folder.
        secondary: metrics of the task that its reward does not contain, or hardly.
    """

    start: str
    prepare: Callable[[Path, int], None]
    judge: Callable[[ChatRequest], Reply] = coach.reply
    overrides: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()
    one_start: bool = False
    environment: Callable[[Path], Mapping[str, str]] = lambda folder: {}

    def folder(self, worlds: Path, seed: int) -> Path:
        """The world's folder for a seed, below this one; prepared once."""
        folder = worlds / self.start / ("one" if self.one_start else str(seed))
        if not (folder / "done").exists():
            self.prepare(folder, seed)
            (folder / "done").touch()
        return folder


def _useless(request: ChatRequest) -> Reply:
    """Every critique is useless."""
    reply = coach.reply(request)
    asks_for_critique = isinstance(reply, Json) and "critique" in reply.value
    return Json({"critique": USELESS}) if asks_for_critique else reply


def _noisy(request: ChatRequest) -> Reply:
    """Every second critique is useless."""
    content = json.dumps(request.body.get("messages", []), sort_keys=True)
    return _useless(request) if zlib.crc32(content.encode()) % 2 else coach.reply(request)


def _slow(request: ChatRequest) -> Reply:
    """A critique takes 1 to 7 seconds, mostly few, as with a model that thinks for as long as it likes."""
    reply = coach.reply(request)
    content = json.dumps(request.body.get("messages", []), sort_keys=True)
    patience = zlib.crc32(content.encode()) / 2**32
    return replace(reply, delay=1.0 + 6.0 * patience**2) if isinstance(reply, Json) else reply


def _telling(request: ChatRequest) -> Reply:
    """Every critique names the right answer."""
    reply = coach.reply(request)
    if not isinstance(reply, Json) or "critique" not in reply.value:
        return reply
    return Json({"critique": reply.value["critique"] + told(str(request.data["correct_answer"]))})


def _stories(form: Form, population: Population, folder: Path, seed: int) -> None:
    warm_start.prepare(folder, warm_start.WarmStart(seed=seed), forms=(form,), population=population)


def _sellers(folder: Path, seed: int) -> None:
    sellers.prepare(folder, replace(sellers.WARM_START, seed=seed))


# How often drafts are right before training, and what the judge writes.
_PEOPLE = {
    "usual": Population(),
    "rare": RARELY_RIGHT,
    "very rare": HARDLY_EVER_RIGHT,
    "often": Population(careful=0.8, coached=0.95),
    "given away": Population(told=True),
}
_JUDGES: dict[str, Callable[[ChatRequest], Reply]] = {"noisy": _noisy, "useless": _useless, "slow judge": _slow}


def _exact(task: str, form: Form) -> dict[tuple[str, str], World]:
    """The regimes of a task that is scored by rule."""

    def start(people: str) -> str:
        name = people.replace(" ", "_")
        return name if task == "hitom" else f"{task}-{name}"

    worlds = {(task, name): World(start(name), partial(_stories, form, people)) for name, people in _PEOPLE.items()}
    worlds[task, "given away"] = replace(worlds[task, "given away"], judge=_telling, overrides=REVEAL)
    usual = worlds[task, "usual"]
    return worlds | {(task, name): World(usual.start, usual.prepare, judge) for name, judge in _JUDGES.items()}


# Task and regime -> world.
WORLDS: dict[tuple[str, str], World] = _exact("hitom", HITOM) | _exact("paratomi", PARATOMI)
WORLDS["sotopia", "usual"] = World(
    "sotopia-usual", _sellers, market.reply, sellers.OVERRIDES, ("secret", "goal", "social_rules")
)


def real(model: str, people: Path) -> World:
    """A pretrained model that writes the first messages of MirrorBench's people (`recipe/demo/first_message.py`)."""
    return World(
        "first_message",
        lambda folder, seed: first_message.prepare(folder, model, people),
        overrides=first_message.OVERRIDES,
        one_start=True,
        environment=lambda folder: {"PYTHONPATH": first_message.register(folder)},
    )


WORLDS["first_message", "usual"] = real("model", Path("people"))  # the command line says where they are
