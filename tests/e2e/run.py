"""Start real training runs as a user would, through the launcher, and read what they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from soul.files.line_file import either_form, read_lines

ROOT = Path(__file__).resolve().parents[2]
SENTINEL_KEY = "sk-sentinel-4711-never-in-an-artefact"

# The recipe, shrunk to a model of a million parameters on two cores.
SMALL = (
    "data.max_prompt_length=600",
    "data.max_response_length=32",
    "data.max_feedback_length=128",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=1",  # weights go in several pieces
    "trainer.logger=[console]",
)
# The recipe, shrunk to dialogues of a model of 135 million parameters.
DIALOGUES = (
    *("data.max_prompt_length=1536", "data.max_feedback_length=256", "data.max_response_length=2048"),
    "data.max_turn_length=96",
    *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=2"),
    *("actor_rollout_ref.actor.optim.lr=1e-3", "data.allow_overlap=true", "trainer.logger=[console]"),
    *("actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16"),
)


def warm_world(folder: Path, steps: int) -> None:
    """Write the demo's rows, and a tiny model that is right now and then, in a process that gives its memory back."""
    program = "import pathlib, sys; from recipe.demo.warm_start import WarmStart, prepare; "
    program += f"prepare(pathlib.Path(sys.argv[1]), WarmStart(steps={steps}))"
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, check=True, timeout=900)


@dataclass
class Run:
    """One training run of `recipe/ditto/run_rl.sh`."""

    folder: Path  # OUTPUT_DIR; the run folder is <folder>/run
    train: Path | str  # "": the launcher's own file of the task, in DATA_DIR
    val: Path | str  # one file, or several by blanks
    model: Path
    judge_url: str
    overrides: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)  # the words of a command that runs the launcher
    cwd: Path = ROOT
    task: str = "hitom"
    recipe: Sequence[str] = SMALL
    process: subprocess.Popen[bytes] | None = None

    @property
    def dir(self) -> Path:
        return self.folder / "run"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def start(self, *more: str) -> None:
        environment = {
            **os.environ,
            "OUTPUT_DIR": str(self.folder),
            "EXPERIMENT_NAME": "run",
            **({"TRAIN_FILES": str(self.train), "VAL_FILES": str(self.val)} if self.train else {}),
            "ACTOR_MODEL_PATH": str(self.model),
            "OPENAI_BASE_URL": self.judge_url,
            "OPENAI_API_KEY": SENTINEL_KEY,
            "HF_HUB_OFFLINE": "1",
            "PLATFORM": "cpu",
            **self.environment,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.before, *self.command(), *more],
                cwd=self.cwd,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def command(self) -> list[str]:
        return ["bash", str(ROOT / "recipe/ditto/run_rl.sh"), self.task, *self.recipe, *self.overrides]

    def wait(self, timeout_s: float) -> int:
        """Exit code; on time-out the run is killed and the test fails with the log's end."""
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the run did not end in {timeout_s:.0f} s:\n{self.tail()}") from None

    def until(self, happened: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for something the run does."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while not happened():
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.tail()}"
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{what}: not in {timeout_s:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """kill -9 of the run and everything it started, by process id."""
        assert self.process is not None
        for process in self.descendants():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self.process.wait(30)

    def descendants(self) -> list[psutil.Process]:
        assert self.process is not None
        return processes_of(self.folder)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def traces(self, name: str) -> list[dict[str, Any]]:
        path = either_form(self.dir / "traces" / f"{name}.jsonl")
        return [json.loads(line.text) for line in read_lines(path)]

    def metrics(self) -> dict[int, dict[str, float]]:
        """step -> its numbers."""
        found: dict[int, dict[str, float]] = {}
        for line in (self.dir / "metrics.jsonl").read_text().splitlines():
            numbers = json.loads(line)
            found.setdefault(int(numbers["step"]), {}).update(numbers)
        return found

    def tracked_step(self) -> int:
        return int((self.dir / "latest_checkpointed_iteration.txt").read_text())


def processes_of(output_dir: Path) -> list[psutil.Process]:
    """A run's processes. Ray detaches some, so they are found by the run's own environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("OUTPUT_DIR") == str(output_dir):
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def greedy_answers(model_dir: Path, prompts: list[str], max_tokens: int) -> list[str]:
    """Greedy answers of a checkpoint folder in plain transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    answers = []
    for prompt in prompts:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=False
        )
        out = model.generate(ids, do_sample=False, max_new_tokens=max_tokens)
        said = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
        answers.append(said.rstrip("\ufffd"))  # what the token limit cut of a character is not said
    return answers
