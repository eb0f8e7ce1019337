"""The model card of a checkpoint: README.md in the form that the Hugging Face hub shows.

It says what the model was made from and how, what it was trained on, what it reached, and who judged it. It names
models by their hub ids and files by their names, never a path of the machine. The licence is for you to state.

The card is no part of the checkpoint's manifest: you may edit it, and training still resumes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from omegaconf import DictConfig

from ditto.objectives import description
from ditto.run import run_json
from ditto.run.manifest import CARD
from ditto.run.run_folder import RunFolder
from ditto.settings import Settings
from soul import tasks
from soul.cli.redaction import redact_guessing
from soul.judge import Endpoint
from soul.judge.ledger import Ledger

logger = logging.getLogger(__name__)

ADAPTER = "lora_adapter"
TEMPLATE = """---
{{ card_data }}
---

# {{ title }}

{{ method }}
{% for heading, text in sections.items() %}
## {{ heading }}

{{ text }}
{% endfor %}
## Licence

Not stated. Before you publish, add `license: ...` to the header of this file. The licences of the base model and of the
data apply too.
"""
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_TASK = re.compile(r"(?:ditto/secondary|val-core|val)/([^/]+)/.+")
_SHOWN = re.compile(r"ditto/(reward_draft|reward_refined|gap)|val-core/[^/]+/reward/mean@\d+")


def write_card(
    folder: Path, title: str, base: str, how: str, tags: Sequence[str], sections: Callable[[], Mapping[str, str]]
) -> None:
    """Write the card into a checkpoint, and into the folder of its adapter.

    If that fails, a log line says why: a card never costs a checkpoint.

    Args:
        base: path or hub id of the model that training started from.
        how: the kind of training, as in "trained with ...".
        sections: makes heading -> Markdown.
    """
    try:
        given: dict[str, Any] = {"title": title, "method": f"{shown_model(base)}, {how}.", "sections": sections()}
        for place, library in ((folder, "transformers"), (folder / ADAPTER, "peft")):
            if place.is_dir():
                data = ModelCardData(
                    base_model=base if _is_hub_id(base) else None,  # the header takes ids of the hub alone
                    library_name=library,
                    pipeline_tag="text-generation",
                    tags=["ditto-soul", *tags],
                )
                card = ModelCard.from_template(data, template_str=TEMPLATE, **given)
                (place / CARD).write_text(redact_guessing(str(card)), encoding="utf-8")
    except Exception as error:  # noqa: BLE001 - see above
        logger.warning("%s has no model card: %s: %s", folder.name, type(error).__name__, error)


def write_rl_card(folder: Path, config: DictConfig, step: int) -> None:
    """Write the card of an RL checkpoint, from the run's config (with its gateway), metrics, data and usage."""
    name = Settings.from_config(config).objective.name
    title, base = f"{config.trainer.experiment_name}, step {step}", str(config.actor_rollout_ref.model.path)
    how = f"trained with DITTO/SOUL (objective `{name}`) to simulate people"
    write_card(folder, title, base, how, ("reinforcement-learning", name), lambda: _rl_sections(config, step))


def _rl_sections(config: DictConfig, step: int) -> dict[str, str]:
    settings = Settings.from_config(config)
    metrics = {number: line for number, line in RunFolder(settings.run_dir).metrics().items() if number <= step}
    name, model, actor = settings.objective.name, config.actor_rollout_ref.model, config.actor_rollout_ref.actor
    rank = int(model.lora_rank)
    training = [
        ("", "what"),
        ("base model", shown_model(str(model.path))),
        ("steps", f"{step} of {config.trainer.total_training_steps or 'as many as the epochs have'}"),
        ("batch", f"{config.data.train_batch_size} prompts of {config.actor_rollout_ref.rollout.n} sessions"),
        ("updates", f"{actor.ppo_mini_batch_size} prompts each, learning rate {actor.optim.lr}"),
        ("weights", f"LoRA, rank {rank}, alpha {model.lora_alpha}, merged" if rank else "all weights trained"),
        ("refined drafts", f"`refine.when={config.refine.when}`" if settings.objective.refines else "none"),
        ("tokens", f"{config.data.max_prompt_length} of prompt, {config.data.max_response_length} of response at most"),
        ("seed", str(config.data.seed)),
    ]
    files = [("split", "file", "rows", "tasks", "sha256")]
    for card in run_json.earlier(settings.run_dir / run_json.FILE).get("data_cards", ()):
        file, of_tasks = Path(card["name"]).name, ", ".join(card["tasks"])
        files.append((card["split"], file, str(card.get("rows", "")), of_tasks, (card.get("sha256") or "")[:16]))
    results = last_values(metrics, lambda key: _SHOWN.fullmatch(key) is not None)
    return {
        "Training": table(training),
        "Objective": f"`{name}`, as `ditto/objectives` defines it:\n\n```text\n{description(name)}\n```",
        "Data": table(files),
        "Results": f"{results}\n\nRewards are verdicts of the judges below: compare them only with those of the same "
        "judges.",
        "Judges": _judges(settings, metrics),
        "Versions": ", ".join(f"{package} {number}" for package, number in run_json.versions()),
    }


def _judges(settings: Settings, metrics: Mapping[int, Mapping[str, float]]) -> str:
    """The models that judged and played, and the prompts of the judges."""
    gateway, ledger = settings.gateway, Ledger.load(settings.ledger_file)
    asked: list[tuple[str, Endpoint]] = [
        (role, gateway.roles[role]) for role in gateway.roles if role in ledger.by_role()
    ]
    asked += [("jury", member) for member in gateway.jury]
    asked += [(f"judge of {task}", endpoint) for task, endpoint in gateway.by_task.items() if task in ledger.tasks]
    keys = {key for numbers in metrics.values() for key in numbers}
    trained = sorted({match[1] for key in keys if (match := _TASK.fullmatch(key)) and match[1] in tasks.names()})
    prompts = sorted({f"`{prompt.id}`" for name in trained for prompt in tasks.load(name).prompts})
    rows = [(role, f"`{each.model}`", each.reasoning_effort or "the model's own") for role, each in asked]
    shown = table([("role", "model", "reasoning effort"), *rows]) if rows else "No model judged."
    return shown + (f"\n\nPrompts: {', '.join(prompts)}." if prompts else "")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table; the first is its head."""
    head, *body = ([re.sub(r"\s+", " ", cell).replace("|", r"\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def last_values(metrics: Mapping[int, Mapping[str, float]], shown: Callable[[str], bool]) -> str:
    """The last value of each metric that is shown, with its step, as a table."""
    last = {key: (step, value) for step, line in sorted(metrics.items()) for key, value in line.items() if shown(key)}
    rows = [(key, str(step), f"{value:.4f}") for key, (step, value) in sorted(last.items())]
    return table([("metric", "step", "value"), *rows]) if rows else "None are recorded."


def shown_model(model: str) -> str:
    """A hub id as it is; of a folder its name alone, with the run's if it is a checkpoint."""
    if _is_hub_id(model):
        return f"`{model}`"
    path = Path(model)
    name = f"{path.parent.name}/{path.name}" if path.name.startswith("global_step_") else path.name
    return f"a local checkpoint, `{name}`"


def _is_hub_id(model: str) -> bool:
    return _HUB_ID.fullmatch(model) is not None and not Path(model).exists()
