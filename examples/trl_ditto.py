"""DITTO in TRL's GRPOTrainer: SOUL plays draft, verdict, critique and refined answer; `ditto.loss` is the loss.

    pip install -e . torch 'trl>=1.16'                     # without verl, which fails beside TRL 1.x
    python examples/trl_ditto.py --model HuggingFaceTB/SmolLM2-135M-Instruct --task hitom --steps 2

The rows are invented and the judge is SOUL's stand-in, so it needs no key and teaches nothing. Pass --data with a task
file, and --judge-model with the name of a judge at OPENAI_BASE_URL, to train. It plays tasks of one turn.

TRL wants as many completions of a prompt as it repeats the prompt, so a group of `num_generations` holds the sequences
of num_generations / 3 sessions: each session's draft, and its refined answer in both contexts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

import ditto
from soul import api
from soul.examples.endpoint import answer as stand_in
from soul.message import Message
from soul.policy import Players
from soul.rows.task_files import TaskRow
from soul.session import RefineSettings, Session, run_session

KINDS = ("draft", "refined_base", "refined_feedback")


class SampledTurn:
    """A seat that samples its only turn, and keeps the token ids: what is trained is what was sampled."""

    def __init__(self, trainer: DittoTrainer) -> None:
        self.trainer = trainer
        self.contexts: tuple[list[int], list[int]] | None = None  # prompt ids without and with the feedback
        self.response: list[int] = []

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        if self.contexts is not None:
            raise ValueError("examples/trl_ditto.py plays tasks of one turn")
        self.contexts = (self.trainer.encode(base or messages), self.trainer.encode(messages))
        self.response = self.trainer.sample(self.contexts[1])
        return str(self.trainer.processing_class.decode(self.response, skip_special_tokens=True))


class DittoTrainer(GRPOTrainer):  # type: ignore[misc,unused-ignore]
    """GRPOTrainer with sessions of a SOUL task as rollouts, and an objective of DITTO's."""

    def __init__(
        self,
        model: str,
        rows: Sequence[TaskRow],
        args: GRPOConfig,
        *,
        judge: api.Judges = stand_in,
        objective: str = "ditto",
        options: dict[str, Any] | None = None,
    ) -> None:
        if not args.num_generations or args.num_generations % 3:
            raise ValueError("num_generations must be a multiple of 3: a session gives three sequences")
        self.rows, self.judge, self.objective, self.options = rows, judge, objective, options
        prompts = Dataset.from_list([{"prompt": [{"role": "user", "content": str(i)}]} for i in range(len(rows))])
        super().__init__(
            model,
            reward_funcs=lambda reward, **_: reward,
            args=args,
            train_dataset=prompts,
            processing_class=AutoTokenizer.from_pretrained(model),
            rollout_func=DittoTrainer.rollout,
        )

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a prompt."""
        tokenizer = self.processing_class
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    @torch.no_grad()
    def sample(self, prompt: list[int]) -> list[int]:
        """One answer, with the end token if the policy sampled it. Use `self.vllm_generation` on a GPU."""
        ids = torch.tensor([prompt], device=self.accelerator.device)
        with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as model:
            made = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=self.args.temperature,
                top_p=1.0,
                top_k=0,
                max_new_tokens=self.args.max_completion_length,
                pad_token_id=self.processing_class.pad_token_id,
            )
        return [int(token) for token in made[0, len(prompt) :]]

    @staticmethod
    def rollout(prompts: list[Any], trainer: DittoTrainer) -> dict[str, Any]:
        """The sequences of the sessions, three in a row; TRL hands over each prompt `num_generations` times."""
        numbers = [int(prompt[-1]["content"]) for prompt in prompts][::3]
        played = asyncio.run(trainer.play(numbers))
        trainer.sequences = [described for session in played for described, *_ in session]
        ids = [(prompt, response) for session in played for _, prompt, response in session]
        rewards = [s.draft_reward if s.kind == "draft" else s.refined_reward for s in trainer.sequences]
        return {
            "prompt_ids": [prompt for prompt, _ in ids],
            "completion_ids": [response for _, response in ids],
            "logprobs": None,
            "reward": [float("nan") if reward is None else reward for reward in rewards],
        }

    async def play(self, numbers: Sequence[int]) -> list[list[tuple[ditto.Sequence, list[int], list[int]]]]:
        """One session for each number of a row: its three sequences, with the ids of prompt and response."""
        sessions = []
        async with api.gateway(self.judge) as gateway:
            for count, number in enumerate(numbers):
                seats: dict[str, SampledTurn] = {}

                def players(context: str = "base", seats: dict[str, SampledTurn] = seats) -> Players:
                    return Players(lambda _: seats.setdefault(context, SampledTurn(self)))

                row = self.rows[number]
                done = await run_session(row.task, row.row, players, gateway, RefineSettings())
                sessions.append(self.sequences_of(str(number), str(count), done, seats))
        return sessions

    def sequences_of(
        self, prompt: str, session: str, done: Session, seats: dict[str, SampledTurn]
    ) -> list[tuple[ditto.Sequence, list[int], list[int]]]:
        """What is trained of a session. An attempt without a verdict has no reward: its sequences count nowhere."""
        rewards = [
            attempt.verdict.reward if attempt is not None and attempt.verdict is not None else None
            for attempt in (done.draft, done.refined)
        ]
        end, found = [self.processing_class.eos_token_id], []
        for kind in KINDS:
            seat = seats.get("base" if kind == "draft" else "feedback")
            ids = (end, end)  # stands for a sequence that was never sampled
            if seat is not None and seat.contexts is not None and seat.response:
                ids = (seat.contexts[kind == "refined_feedback"], seat.response)
            found.append((ditto.Sequence(kind, prompt, session, *rewards), *ids))  # type: ignore[arg-type]
        return found

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        made = super()._generate_and_score_completions(inputs)
        # TRL shuffles and splits what is returned here; the loss is told which sequences it got.
        self.mask = made["completion_mask"].bool()
        return {**made, "number": torch.arange(len(self.mask), device=self.mask.device)}

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        log_probs, *_ = self._get_per_token_logps_and_entropies(model, ids, attended, self.mask.shape[1])
        loss, metrics = ditto.loss(
            self.objective,
            self.sequences,
            log_probs,
            self.mask,
            rows=inputs["number"].tolist(),
            old_log_probs=inputs.get("old_per_token_logps"),
            options=self.options,
            clipping=ditto.Clipping(self.epsilon_low, self.epsilon_high),
        )
        for name, value in metrics.items():
            self._metrics["train"][f"ditto/{name}"].append(value)
        return loss


def main() -> None:
    """Train for some steps; TRL prints what each did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="a chat model, hub id or folder")
    parser.add_argument("--task", default="hitom", help="a task of one turn: soul tasks")
    parser.add_argument("--data", help="its file of rows; invented rows without it")
    parser.add_argument("--judge-model", help="at OPENAI_BASE_URL; a stand-in without it")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=2, help="of a step")
    parser.add_argument("--sessions", type=int, default=2, help="of a prompt")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer at most")
    parser.add_argument("--out", type=Path, default=Path("outputs/trl"))
    given = parser.parse_args()
    group = 3 * given.sessions
    args = GRPOConfig(
        output_dir=str(given.out),
        max_steps=given.steps,
        num_generations=group,
        per_device_train_batch_size=group,
        gradient_accumulation_steps=given.prompts,
        max_completion_length=given.tokens,
        learning_rate=1e-6,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
    )
    judge = {"judge": {"model": given.judge_model}} if given.judge_model else stand_in
    DittoTrainer(given.model, api.rows(given.task, given.data), args, judge=judge).train()


if __name__ == "__main__":
    main()
