"""Our side of benchmarks/grpo_vs_trl.py: GRPO steps in one process, and the updates on what TRL sampled.

    python -m benchmarks.grpo_contender FOLDER

FOLDER holds model/, work.json, and sequences.json of TRL. Writes result.json: CPU seconds of each phase and step,
the gradient norms of TRL's updates, and whether updates are computed as trees.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from benchmarks.one_process_sampler import LocalSampler, Request
from benchmarks.one_process_update import Update
from benchmarks.side_by_side import ROOT
from ditto.batch.sequence_record import SequenceRecord
from ditto.launching.compose import load_config
from ditto.settings import Settings
from ditto.verl_hooks import plugin
from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.record import AttemptRecord, SessionRecord

NO_END = -1  # no token ends an answer: all have the same length


def config_of(folder: Path, work: dict[str, Any]) -> DictConfig:
    """The demo's config for this work: one update a step."""
    actor = "actor_rollout_ref.actor"
    return load_config(
        [
            *("--config-dir", str(ROOT / "recipe" / "demo"), "--config-name", "demo", "platform=cpu"),
            *(f"data.train_files=[{folder}/none]", f"data.val_files=[{folder}/none]", f"run.dir={folder}/run"),
            *(f"actor_rollout_ref.model.path={folder}/model", "algorithm.objective=grpo"),
            *(f"data.train_batch_size={work['prompts']}", f"{actor}.ppo_mini_batch_size={work['prompts']}"),
            *(f"actor_rollout_ref.rollout.n={work['group']}", f"{actor}.optim.lr={work['learning_rate']}"),
            *(f"{actor}.optim.weight_decay=0", "actor_rollout_ref.model.enable_gradient_checkpointing=false"),
        ],
        "-m benchmarks.grpo_contender",
    )


def reward(answer: Sequence[int]) -> float:
    """How many tokens of the answer are even numbers, as in trl_grpo_contender.py: only a wide spread matters."""
    return float(sum(token % 2 == 0 for token in answer))


class Contender:
    """Samples and trains.

    Args:
        folder: as above.
    """

    def __init__(self, folder: Path) -> None:
        self.work = json.loads((folder / "work.json").read_text())
        config = config_of(folder, self.work)
        self.tokenizer = AutoTokenizer.from_pretrained(folder / "model")
        model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
        self.sampler = LocalSampler(model, [NO_END], seed=1)
        self.update = Update(config, Settings.from_config(config), self.tokenizer.eos_token_id)
        self.steps = 0

    def train(self, sequences: Sequence[tuple[list[int], list[int], list[float]]]) -> float:
        """One update on prompts, answers and their log-probs, group by group. Returns the gradient norm."""
        self.steps += 1
        outputs, traces = [], []
        for number, (prompt, answer, log_probs) in enumerate(sequences):
            group, session = divmod(number, self.work["group"])
            name = f"{group}_{session}"
            value = reward(answer)
            record = SequenceRecord("draft", str(group), name, True, tokens=len(answer), draft_reward=value)
            outputs.append(
                AgentLoopOutput(
                    prompt_ids=prompt,
                    response_ids=answer,
                    response_mask=[1] * len(answer),
                    response_logprobs=log_probs,
                    num_turns=2,
                    metrics=AgentLoopMetrics(),
                    extra_fields={"ditto": asdict(record)},
                )
            )
            draft = AttemptRecord(reward=value)
            traces.append(SessionRecord(task="rule", number=0, row=group, session=name, draft=draft))
        return self.update(self.steps, outputs, traces)["actor/grad_norm"]

    def sample(self, texts: Sequence[str]) -> list[tuple[list[int], list[int], list[float]]]:
        """A group of answers to each text."""
        self.sampler.version = self.steps
        prompts = [tuple(self.tokenizer(text)["input_ids"]) for text in texts for _ in range(self.work["group"])]
        nobody: asyncio.Future[Any] = asyncio.Future(loop=asyncio.new_event_loop())
        requests = [
            Request(f"{self.steps}:{number}", prompt, False, self.work["response"], nobody)
            for number, prompt in enumerate(prompts)
        ]
        answers = self.sampler.sample(requests)
        return [(list(p), a.token_ids, a.log_probs or []) for p, a in zip(prompts, answers, strict=True)]

    def step(self, texts: Sequence[str]) -> dict[str, float]:
        """One step. Returns the CPU seconds of its phases."""
        start = time.process_time()
        sequences = self.sample(texts)
        sampled = time.process_time()
        self.train(sequences)
        self.update.copy_weights(self.sampler.model)
        end = time.process_time()
        return {"sampling": sampled - start, "update": end - sampled, "step": end - start}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.grpo_contender", description=__doc__)
    parser.add_argument("folder", type=existing_folder)
    folder: Path = parser.parse_args(arguments).folder
    torch.set_num_threads(1)
    plugin.require("cpu")
    contender = Contender(folder)
    theirs = json.loads((folder / "sequences.json").read_text())["steps"]
    norms = [contender.train([(p, a, [0.0] * len(a)) for p, a in step]) for step in theirs]
    texts, count = contender.work["texts"], contender.work["prompts"]
    contender.update.copy_weights(contender.sampler.model)
    steps = [contender.step(texts[i : i + count]) for i in range(0, len(texts), count)]
    contender.update.close()
    seconds = {phase: [step[phase] for step in steps] for phase in steps[0]}
    result = {"norms": norms, "seconds": seconds, "as_trees": contender.update.as_trees}
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
