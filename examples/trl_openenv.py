"""Train on SOUL with TRL: its GRPOTrainer plays the policy, a server of soul.openenv plays all others and judges.

    soul openenv hitom --data data                                  # in the server's environment
    python examples/trl_openenv.py MODEL hitom --steps 2            # in the trainer's: trl, openenv

The policy speaks by calling the tool `say`, so a dialogue has as many turns as it needs. A reply without a call is what
it says. A verdict that fails is None, which TRL leaves out of the group.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from datasets import Dataset
from openenv.core import GenericEnvClient
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template, supports_tool_calling


class Soul:
    """One session of the server. TRL calls `reset`, shows its text to the policy, and offers `say` as a tool."""

    address = "http://127.0.0.1:8000"

    def __init__(self) -> None:
        self._client = GenericEnvClient(base_url=self.address).sync().__enter__()

    def reset(self, **row: Any) -> str:
        """Begin a row, of which TRL passes every column; return what the policy reads."""
        self._result = self._client.reset(split=row["split"], index=row["index"])
        return "\n\n".join(message["content"] for message in self._result.observation["messages"])

    def say(self, text: str) -> str:
        """Say something in the conversation.

        Args:
            text: what you say, word by word.

        Returns:
            The reply, or the end of the conversation.
        """
        if not self._result.done:
            self._result = self._client.step({"text": text})
        return "This is the end." if self._result.done else self._result.observation["messages"][-1]["content"]

    def _verdict(self, said: str) -> float | None:
        try:
            self.say(said)
        except RuntimeError as error:  # a judge failed: there is no reward
            print(f"no verdict: {error}")
            return None
        return self._result.reward if self._result.done else None  # None: the policy stopped before the end


def verdict(completions: list[list[dict[str, str]]], environments: list[Soul], **_: Any) -> list[float | None]:
    """The reward of each episode."""
    said = [completion[-1].get("content") or "" for completion in completions]
    return [environment._verdict(text) for environment, text in zip(environments, said, strict=True)]


def main() -> None:
    """Train a model on the rows of a split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("split")
    parser.add_argument("--url", default=Soul.address)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256, help="most tokens of an episode")
    parser.add_argument("--out", default="outputs/trl")
    given = parser.parse_args()
    Soul.address = given.url

    tokenizer = AutoTokenizer.from_pretrained(given.model)
    if not supports_tool_calling(tokenizer):  # such as SmolLM2's, whose tokens are the same as Qwen's
        tokenizer.chat_template = qwen2_5_chat_template
    nothing = [{"role": "user", "content": ""}]  # TRL appends what `reset` returns
    rows = [{"prompt": nothing, "split": given.split, "index": index} for index in range(given.rows)]
    config = GRPOConfig(
        output_dir=given.out,
        max_steps=given.steps,
        num_generations=2,
        per_device_train_batch_size=2,
        max_completion_length=given.tokens,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(given.model),
        reward_funcs=verdict,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        environment_factory=Soul,
    )
    trainer.train()


if __name__ == "__main__":
    main()
