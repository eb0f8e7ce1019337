"""Folders of training runs with made-up numbers, through the writers that a real run uses."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from ditto.run.alarms import raise_alarms
from ditto.run.diagnostics import step_diagnostics
from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import session_metrics
from soul.record import AttemptRecord, SessionRecord

WORDS = "the a seller buyer price kettle lamp garden story box red green asks says keeps moves sees wants".split()
ADVICE = "Name your price early, and say why the kettle is worth it."


def attempt(text: str, reward: float, metrics: Mapping[str, float]) -> AttemptRecord:
    seats = {"policy": [{"role": "user", "content": "Sell it."}, {"role": "assistant", "content": text}]}
    return AttemptRecord.model_validate({"seats": seats, "reward": reward, "metrics": dict(metrics)})


def session(
    task: str,
    step: int,
    number: int,
    of_row: int,
    rewards: tuple[float, float | None],
    text: str = "I sell it.",
    feedback: str = ADVICE,
    **metrics: float,
) -> SessionRecord:
    """A session of a row; without a second reward, it is not refined and has no feedback."""
    draft, refined = rewards
    return SessionRecord(
        task=task,
        file="train.parquet",
        number=number,
        row=number,
        step=step,
        prompt=f"{task}-{number}",
        session=f"{task}-{number}_{of_row}",
        draft=attempt(text, draft, metrics),
        feedback=feedback if refined is not None else None,
        refined=attempt(text, refined, {name: value + 1 for name, value in metrics.items()})
        if refined is not None
        else None,
    )


def training(
    folder: Path,
    seed: int,
    *,
    objective: str = "ditto",
    steps: int = 24,
    tasks: Sequence[str] = ("sotopia",),
    gain: float = 0.02,
    secret: float = 0.0,
    collapse: bool = False,
    repeated_rows: int = 12,
) -> Path:
    """A training run of this many steps; its rewards rise by `gain` a step, and sotopia's secret by `secret`.

    Args:
        collapse: entropy and lengths leave their range, so that alarms are raised.
        repeated_rows: how many rows the steps go through, four a step, before they begin again.
    """
    dice, run = random.Random(f"{objective}{seed}"), RunFolder(folder)
    for step in range(1, steps + 1):
        sessions = []
        for task in tasks:
            for row in range(4):
                number = (4 * step + row) % repeated_rows
                for k in range(4):
                    draft = min(1.0, 0.2 + gain * step + dice.gauss(0, 0.08))
                    refined = (
                        None if objective == "grpo" else min(1.0, draft + 0.3 - 0.008 * step + dice.gauss(0, 0.05))
                    )
                    text = " ".join(dice.choices(WORDS, k=12))
                    metrics = {"goal": 8 * draft, "secret": -2 + secret * step} if task == "sotopia" else {}
                    advice = f"{ADVICE} In step {step}."
                    sessions.append(session(task, step, number, k, (draft, refined), text, advice, **metrics))
        numbers = session_metrics(sessions) | step_diagnostics(sessions)
        fading = 0.9**step if collapse else 0.99**step
        numbers |= {"ditto/groups": 4.0 * len(tasks)}
        numbers |= {"actor/entropy": 1.5 * fading, "actor/grad_norm": 0.5 + dice.random() / 5}
        numbers |= {"ditto/response_tokens_draft": 40.0 * (1.05**step if collapse else 1.002**step)}
        if objective != "grpo":
            numbers |= {"ditto/context_logprob_gap": 1.5 * 0.95**step}
        if step % 6 == 0:
            numbers |= {f"val-core/{task}/reward/mean@1": 0.2 + gain * step for task in tasks}
        numbers |= raise_alarms(step, objective, numbers, run.metrics())
        run.write_traces("step", step, sessions)
        run.log_metrics(step, numbers)
    return folder
