"""The demo of distillation: an expert for each of two tasks, and two students that learn from both.

    python -m recipe.demo.experts [hydra overrides of the experts' training...]

Both tasks ask about the demo's small stories: HiToM with letters, ParaToMi with places. One warm start knows both forms
and is right in less than half of the cases. Each expert is that model, trained with DITTO on one of the tasks. Then
`recipe/ditto/distill.sh` runs, the same command as for big models. Forward: the experts answer training rows of their
own task, the best answers are kept, and the warm model is trained on them. Reverse: the warm model answers the rows of
both tasks itself, and the expert of a row's task scores every token. All five models are evaluated on held-back stories
of both tasks.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging as hf_logging

from recipe.demo import warm_start
from recipe.demo.run import ON_A_CPU, ROOT, StageFailed, console, demo_parser, judge, stage, train
from recipe.demo.stories import HITOM, PARATOMI
from soul.cli.error_border import reports_errors

FORMS = (HITOM, PARATOMI)
WARM_START = warm_start.WarmStart(steps=480)  # two forms to learn
STUDENT = (
    *("data.train_batch_size=32", "data.max_prompt_length=512", "data.max_response_length=32"),
    *("data.max_token_len_per_gpu=4096", "optim.lr=1e-3", "trainer.total_epochs=4"),
)
ON_POLICY = (
    *("data.max_prompt_length=512", "data.max_feedback_length=0", "data.max_response_length=32"),
    *("data.train_batch_size=24", "actor_rollout_ref.actor.ppo_mini_batch_size=12", "actor_rollout_ref.rollout.n=4"),
    *("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384", "actor_rollout_ref.actor.optim.lr=5e-4"),
    *("actor_rollout_ref.model.lora_rank=0", "trainer.total_training_steps=15", "trainer.save_freq=1000"),
)
# Mode of distill.sh -> its own variables; it refuses those of the other mode.
MODES = {
    "forward": {
        "SFT_ARGS": " ".join(STUDENT),
        "KEEP_ARGS": "--near 1",  # in a world of few words, different stories have most of them in common
    },
    "reverse": {"RL_ARGS": " ".join(ON_POLICY)},
}
EXPERT = ("trainer.total_training_steps=15",)  # 45 of 100 of these drafts are right at first


def distill(folder: Path, endpoint: dict[str, str], mode: str) -> None:
    """Run distill.sh (mode: "forward" or "reverse") on the experts in `folder`: the student, and all models' scores."""
    tasks = [form.task.name for form in FORMS]
    settings = {
        "EXPERTS": " ".join(f"{task}:{folder / task / 'train.parquet'}={folder / task / 'run'}" for task in tasks),
        "TASKS": " ".join(str(folder / task / "heldback.parquet") for task in tasks),
        "ACTOR_MODEL_PATH": str(folder / "warm"),
        "OUTPUT_DIR": str(folder),
        "EXPERIMENT_NAME": "distilled",
        "ROWS": "300",
        "LIMIT": "128",
        "MODE": mode,
        **MODES[mode],
        "PLATFORM": "cpu",
        "PYTHON": sys.executable,
    }
    command = ["bash", str(ROOT / "recipe" / "ditto" / "distill.sh"), "policy.max_output_tokens=32"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **endpoint, **ON_A_CPU, **settings}, check=False)
    if done.returncode != 0:
        raise StageFailed(f"distill.sh ended with code {done.returncode}.")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo; overrides go to the training of both experts. Experts that are already trained are kept."""
    overrides = demo_parser("python -m recipe.demo.experts", __doc__).parse_args(arguments).overrides
    folder = Path(os.environ.get("OUTPUT_DIR", "outputs")).absolute() / os.environ.get("EXPERIMENT_NAME", "experts")
    folder.mkdir(parents=True, exist_ok=True)
    hf_logging.disable_progress_bar()
    start = time.perf_counter()
    if not (folder / "warm" / "config.json").exists():
        with stage("Stories of two tasks, a tiny Qwen3 model, and its warm start"):
            warm_start.prepare(folder, WARM_START, FORMS)
    with judge() as endpoint:
        for task in (form.task.name for form in FORMS):
            if not (folder / task / "trained").exists():
                with stage(f"An expert for {task}: DITTO on real Ray, FSDP2 and vLLM"):
                    train(folder / task, folder / "warm", [*EXPERT, *overrides], endpoint)
                (folder / task / "trained").touch()
        with stage("Forward: the experts' answers, the student, and the evaluation"):
            distill(folder, endpoint, "forward")
        with stage("Reverse: the student's answers, scored by the experts, and the evaluation"):
            distill(folder, endpoint, "reverse")
    console.print(f"Whole demo: {time.perf_counter() - start:.0f} s. Everything is in {folder}")


if __name__ == "__main__":
    sys.exit(main())
