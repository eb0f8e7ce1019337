"""The registry of tasks: names, classes and training files. The evaluation sets are in `soul.suites.soul_v1`.

    from soul import tasks
    task = tasks.load("hitom")

Register a task of your own in the entry-point group `soul.tasks` (name -> Task class). The options of a task are the
keyword arguments of its class: `tasks.configure({"sotopia": {"reward": "weighted"}})`; in a run they are the
section `tasks` of the config.
"""

import difflib
import inspect
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from soul.errors import BadSettings, UnknownTask
from soul.suites import soul_v1
from soul.task import Task


class TrainingSplit(NamedTuple):
    """The training split of `run_rl.sh NAME`: the task, its training file (`sim_rl_data/`) and validation file
    (`sim_eval_data/`)."""

    task: str
    train: str
    val: str


_HUMANUAL = ("book", "chat", "email", "news", "opinion", "politics")

_ALIGNX = ("Demo", "Pair", "UGC", "Arbitrary", "History16")

# data_source -> "module:Class". A module is imported when its task is first loaded.
CLASSES: dict[str, str] = {
    "sotopia": "soul.tasks.sotopia:Sotopia",
    "coser": "soul.tasks.coser:CoSER",
    "lifechoices": "soul.tasks.lifechoices:LifeChoices",
    "userllm": "soul.tasks.userllm:UserLLM",
    "mirrorbench": "soul.tasks.mirrorbench:MirrorBench",
    "fantom": "soul.tasks.fantom:FanToM",
    "hitom": "soul.tasks.hitom:HiToM",
    "paratomi": "soul.tasks.paratomi:ParaToMi",
    "mistakes": "soul.tasks.mistakes:Mistakes",
    "twinvoice": "soul.tasks.twinvoice:TwinVoice",
    "social_r1": "soul.tasks.social_r1:SocialR1",
    "behavior_chain": "soul.tasks.behavior_chain:BehaviorChain",
    "sim_arena_math": "soul.tasks.sim_arena:SimArenaMath",
    "sim_arena_doc": "soul.tasks.sim_arena:SimArenaDoc",
    "humanual": "soul.tasks.humanual:Humanual",
    **{f"humanual-{kind}": f"soul.tasks.humanual:Humanual{kind.capitalize()}" for kind in _HUMANUAL},
    "alignx": "soul.tasks.alignx:AlignX",
    **{f"alignx_{kind.lower()}": f"soul.tasks.alignx:AlignX{kind}" for kind in _ALIGNX},
    "socsci210": "soul.tasks.socsci210:SocSci210",
    "humanllm": "soul.tasks.humanllm:HumanLLM",
}
# Name of a training split -> its training file. It is validated on the set of the same name.
_TRAINING = {
    "sotopia": "sotopia_clean_rl",
    "coser": "coser_rl_train",
    "lifechoices": "lifechoices_hard_rl",
    "userllm": "userllm_rl_train",
    "mirrorbench": "mirrorbench_rl_train",
    "fantom": "fantom_rl_train",
    "hitom": "hitom_rl_train",
    "paratomi": "paratomi_rl_train",
    "mistakes": "mistakes_rl_train",
    "twinvoice": "twinvoice_rl_train",
    "social_r1": "social_r1_rl",
    "behaviorchain": "behaviorchain_rl_train",
    "sim_math": "sim_math_rl",
    "sim_doc": "sim_doc_rl",
    **{f"humanual_{kind}": f"humanual_rl_{kind}" for kind in _HUMANUAL},
    "alignx": "alignx_rl_8k",  # for its five sets
    "socsci210": "socsci210_rl_2k",
    "humanllm": "humanllm_rl_train",
}
# What `run_rl.sh` trains by name: 23 tasks.
TASK_FILES: dict[str, TrainingSplit] = {
    name: TrainingSplit("alignx", train, soul_v1.SETS["alignx_demo"].file)
    if name == "alignx"
    else TrainingSplit(soul_v1.SETS[name].task, train, soul_v1.SETS[name].file)
    for name, train in _TRAINING.items()
}


# Values of `data_source` that the original's mixed files also hold; they are no part of SOUL.
EXTRA = frozenset({"mmtom", "tombench", "ifbench", "math", "dapo", "aime", "sotopia_hint"})


@cache
def _external() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group="soul.tasks")}


_options: dict[str, dict[str, Any]] = {}


def configure(options: Mapping[str, Mapping[str, Any]]) -> None:
    """Set the options of tasks for this process: task -> keyword arguments of its class.

    Raises:
        BadSettings: a task has no such option, or refuses its value. The options stay as they were.
        UnknownTask: no such task.
    """
    wanted = {name: dict(of_task) for name, of_task in options.items()}
    if wanted == _options:
        return
    before = dict(_options)
    _set_options(wanted)
    try:
        for name in wanted:
            load(name)
    except Exception:
        _set_options(before)
        raise


def _set_options(options: Mapping[str, dict[str, Any]]) -> None:
    _options.clear()
    _options.update(options)
    load.cache_clear()


def registered() -> list[str]:
    """The tasks of other packages, registered in the entry-point group `soul.tasks`."""
    return sorted(_external())


def names() -> list[str]:
    """The tasks (`data_source` values) that can be loaded in this environment."""
    return sorted({*CLASSES, *_external()})


@cache
def load(name: str) -> Task[Any]:
    """The task of that `data_source`.

    Raises:
        UnknownTask: with the nearest names; or that the name is one of a training split.
    """
    if name in CLASSES:
        return _made(name, resolve_name(CLASSES[name]))
    if name in _external():
        return _made(name, _external()[name].load())
    if name in TASK_FILES:
        raise UnknownTask(
            f"{name!r} is the name of a training split, and its rows carry the data_source "
            f"{TASK_FILES[name].task!r}: correct that column."
        )
    if name in EXTRA:
        raise UnknownTask(
            f"{name!r} is a task that the original trains beside SOUL's, which has no such rows. Copy the file without "
            "them: python -m data.check FILE --without-extra OUT."
        )
    near = difflib.get_close_matches(name.lower(), sorted({*names(), *TASK_FILES}), n=3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise UnknownTask(f"There is no task {name!r}.{hint} Tasks that can be trained here: {', '.join(names())}.")


def _made(name: str, kind: type[Task[Any]]) -> Task[Any]:
    options = _options.get(name, {})
    known = [key for key in inspect.signature(kind).parameters if key not in ("args", "kwargs")]
    unknown = [key for key in options if key not in known]
    if unknown:
        raise BadSettings(
            f"tasks.{name}.{unknown[0]}: {name} has {'the options ' + ', '.join(known) if known else 'no options'}"
        )
    try:
        return kind(**options)
    except ValueError as error:
        raise BadSettings(f"tasks.{name}: {error}") from error


def generated_validation_file(split: TrainingSplit, data: Path) -> Path:
    """The file below DATA_DIR of rows that are generated to validate on, where the benchmark's own are missing."""
    return data / "sim_rl_data" / f"{split.train.removesuffix('_train')}_val.parquet"


def launches(names_: str) -> list[TrainingSplit]:
    """The training splits of `run_rl.sh NAMES`: one name, several with commas, "all", or "paper" (its ten tasks).

    Raises:
        UnknownTask: one of the names is unknown.
    """
    several = {"all": tuple(TASK_FILES), "paper": soul_v1.PAPER}.get(names_) or [
        n.strip() for n in names_.split(",") if n.strip()
    ]
    if not several:
        raise UnknownTask(f"No task is named. There are: {', '.join(TASK_FILES)}; all; paper.")
    return [launch(name) for name in dict.fromkeys(several)]


def launch(name: str) -> TrainingSplit:
    """The training split of a name. Raises UnknownTask: no such name."""
    if name in TASK_FILES:
        return TASK_FILES[name]
    if name in names():  # a task of the user's own
        return TrainingSplit(name, f"{name}_rl_train", f"{name}_val")
    load(name)
    raise UnknownTask(f"The task {name!r} has no training split of its own: use {', '.join(sorted(TASK_FILES))}.")
