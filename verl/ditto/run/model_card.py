"""The model card of a checkpoint: README.md in the form that the Hugging Face hub shows.

It says what the model was made from and how, what it was trained on, what it reached, and who judged it. It names
models by their hub ids and files by their names, never a path of the machine. The licence is for you to state.

The card is no part of the checkpoint's manifest: you may edit it, and training still resumes.
"""

from __future__ import annotations

import logging
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from omegaconf import DictConfig

from ditto.objectives import description
from ditto.run.manifest import CARD
from ditto.run.run_folder import RunFolder
from ditto.settings import Settings
from soul import tasks
from soul.cli.redaction import redact_guessing
from soul.errors import SoulError
from soul.files.json_object import read_object
from soul.judge.ledger import Ledger

logger = logging.getLogger(__name__)

ADAPTER = "lora_adapter"
LICENCE = (
    "Not stated. Before you publish, add `license: ...` to the header of this file. The licences of the base model and "
    "of the data apply too."
)
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_PACKAGES = ("ditto-soul", "verl", "torch", "transformers", "vllm", "peft")
_HELD_BACK = re.compile(r"val-core/(?P<task>[^/]+)/reward/mean@\d+")
_TASK = re.compile(r"(?:ditto/secondary|val-core|val)/([^/]+)/.+")
_SHOWN = ("ditto/reward_draft", "ditto/reward_refined", "ditto/gap")

Rows = Sequence[Sequence[str]]  # head, then lines


@dataclass(frozen=True)
class Card:
    """The content of a card.

    Attributes:
        name: of the run.
        base: path or hub id of the model that training started from.
        method: a sentence: what kind of training it was.
        tags: for the hub.
        sections: title -> Markdown.
        results: for the hub's table of results.
    """

    name: str
    step: int
    base: str
    method: str
    tags: Sequence[str]
    sections: Mapping[str, str]
    results: Sequence[EvalResult] = field(default_factory=tuple)

    def write(self, folder: Path) -> None:
        """Write the card into a checkpoint, and into the folder of its adapter."""
        self._text("transformers").save(folder / CARD)
        if (folder / ADAPTER).is_dir():
            self._text("peft").save(folder / ADAPTER / CARD)

    def _text(self, library: str) -> ModelCard:
        data = ModelCardData(
            base_model=self.base if _is_hub_id(self.base) else None,  # the header takes ids of the hub alone
            library_name=library,
            pipeline_tag="text-generation",
            tags=["ditto-soul", *self.tags],
            model_name=self.name if self.results else None,
            eval_results=list(self.results) or None,
        )
        lines = [f"# {self.name}, step {self.step}", "", self.method, ""]
        for title, text in {**self.sections, "Licence": LICENCE}.items():
            lines += [f"## {title}", "", text, ""]
        return ModelCard(redact_guessing(f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(lines)))


def write_rl_card(folder: Path, config: DictConfig, step: int) -> None:
    """Write the card of an RL checkpoint. If that fails, a log line says why: a card never costs a checkpoint.

    Args:
        folder: the checkpoint.
        config: of the run, with the gateway resolved.
    """
    try:
        rl_card(config, step).write(folder)
    except Exception as error:  # noqa: BLE001 - see above
        logger.warning("%s has no model card: %s: %s", folder.name, type(error).__name__, error)


def rl_card(config: DictConfig, step: int) -> Card:
    """The card of an RL checkpoint, from the run's config, metrics, run.json and usage."""
    settings, trainer = Settings.from_config(config), config.trainer
    metrics = {number: line for number, line in RunFolder(settings.run_dir).metrics().items() if number <= step}
    base, name = str(config.actor_rollout_ref.model.path), settings.objective.name
    held_back = dict(_held_back(metrics))
    sections = {
        "Training": table([("", "what"), *_rl_settings(config, settings, step)]),
        "Objective": f"`{name}`, as `ditto/objectives` defines it:\n\n```text\n{description(name)}\n```",
        "Data": _data(config, settings.run_dir),
        "Results": _results(metrics, held_back),
        "Judges": _judges(settings, metrics),
        "Versions": versions(),
    }
    method = f"{shown_model(base)}, trained with DITTO/SOUL (objective `{name}`) to simulate people."
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type="soul",
            dataset_name=f"SOUL {task}, held-back rows",
            metric_type="reward",
            metric_name=f"mean reward after step {at}",
            metric_value=round(value, 4),
        )
        for task, (at, value) in held_back.items()
    ]
    return Card(str(trainer.experiment_name), step, base, method, ("reinforcement-learning", name), sections, results)


def table(rows: Rows) -> str:
    """Rows of cells as a Markdown table; the first is its head."""
    head, *body = ([re.sub(r"\s+", " ", cell).replace("|", r"\|") for cell in row] for row in rows)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def versions() -> str:
    """The versions of Python and of the packages that train, in one line."""
    shown = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            shown.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # peft and vllm are not part of every install
            continue
    return ", ".join(shown)


def shown_model(model: str) -> str:
    """A hub id as it is; of a folder its name alone, with the run's if it is a checkpoint."""
    if _is_hub_id(model):
        return f"`{model}`"
    path = Path(model)
    name = f"{path.parent.name}/{path.name}" if path.name.startswith("global_step_") else path.name
    return f"a local checkpoint, `{name}`"


def _is_hub_id(model: str) -> bool:
    return _HUB_ID.fullmatch(model) is not None and not Path(model).exists()


def _rl_settings(config: DictConfig, settings: Settings, step: int) -> Iterator[tuple[str, str]]:
    model, actor, rollout = (config.actor_rollout_ref[part] for part in ("model", "actor", "rollout"))
    yield "base model", shown_model(str(model.path))
    yield "steps", f"{step} of {config.trainer.total_training_steps or 'as many as the epochs have'}"
    yield "batch", f"{config.data.train_batch_size} prompts of {rollout.n} sessions"
    yield "updates", f"{actor.ppo_mini_batch_size} prompts each, learning rate {actor.optim.lr}"
    rank = int(model.lora_rank)
    yield "weights", f"LoRA, rank {rank}, alpha {model.lora_alpha}, merged" if rank else "all weights trained"
    yield "refined drafts", f"`refine.when={config.refine.when}`" if settings.objective.refines else "none"
    yield "tokens", f"at most {config.data.max_prompt_length} of prompt, {config.data.max_response_length} of response"
    yield "seed", str(config.data.seed)


def _data(config: DictConfig, run_dir: Path) -> str:
    """The files of the data: their cards, if the run has recorded them."""
    file = run_dir / "run.json"
    cards = read_object(file, SoulError, "Training writes it again.").get("data_cards") if file.is_file() else None
    if not cards:
        rows = [(split, Path(name).name) for split in ("train", "val") for name in _files(config, split)]
        return table([("split", "file"), *rows])
    lines = [("split", "file", "rows", "tasks", "sha256")]
    lines += [
        (
            *(str(card.get("split", "")), Path(str(card.get("name", ""))).name, str(card.get("rows", ""))),
            *(", ".join(card.get("tasks") or {}), str(card.get("sha256") or "")[:16]),
        )
        for card in cards
    ]
    return table(lines)


def _files(config: DictConfig, split: str) -> list[str]:
    files = config.data[f"{split}_files"]
    return [files] if isinstance(files, str) else list(files)


def _held_back(metrics: Mapping[int, Mapping[str, float]]) -> Iterator[tuple[str, tuple[int, float]]]:
    """Task -> step and value of its last validation."""
    for step, numbers in sorted(metrics.items()):
        for key, value in numbers.items():
            if match := _HELD_BACK.fullmatch(key):
                yield match["task"], (step, value)


def _results(metrics: Mapping[int, Mapping[str, float]], held_back: Mapping[str, tuple[int, float]]) -> str:
    last = max(metrics, default=0)
    lines = [("metric", "step", "value")]
    lines += [
        (f"{task}, held-back rows: mean reward", str(at), f"{value:.4f}") for task, (at, value) in held_back.items()
    ]
    lines += [(key, str(last), f"{metrics[last][key]:.4f}") for key in _SHOWN if key in metrics.get(last, {})]
    if len(lines) == 1:
        return "None are recorded."
    return (
        f"{table(lines)}\n\nRewards are verdicts of the judges below: compare them only with those of the same judges."
    )


def _judges(settings: Settings, metrics: Mapping[int, Mapping[str, float]]) -> str:
    gateway = settings.gateway
    used = Ledger.load(settings.ledger_file).by_role()
    lines = [("role", "model", "reasoning effort")]
    for role, endpoint in gateway.roles.items():
        if role in used:
            lines.append((role, f"`{endpoint.model}`", endpoint.reasoning_effort or "the model's own"))
    lines += [("jury", f"`{each.model}`", each.reasoning_effort or "the model's own") for each in gateway.jury]
    lines += [
        (f"judge of {task}", f"`{each.model}`", each.reasoning_effort or "the model's own")
        for task, each in gateway.by_task.items()
        if task in Ledger.load(settings.ledger_file).tasks
    ]
    keys = {key for numbers in metrics.values() for key in numbers}
    trained = sorted({match[1] for key in keys if (match := _TASK.fullmatch(key)) and match[1] in tasks.names()})
    prompts = sorted({prompt.id for name in trained for prompt in tasks.load(name).prompts})
    shown = table(lines) if len(lines) > 1 else "No model judged: the tasks score by rule."
    return shown + (f"\n\nPrompts: {', '.join(f'`{prompt}`' for prompt in prompts)}." if prompts else "")
