"""The demo's warm start: a short supervised training of the tiny model on the mixture of imitated people.

Plain torch, one process. Every batch is drawn fresh, so the model learns the mixture itself and stays undecided: RL
needs samples that differ. The loss covers the answer's tokens only. Prompts go through the tokenizer's chat template
with the generation prompt, so training sees exactly the ids that generation sees.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, Qwen3ForCausalLM

from recipe.demo import stories, tiny_model
from recipe.demo.stories import HITOM, Form
from soul.message import Message

Draw = Callable[[random.Random], tuple[list[Message], str]]


@dataclass(frozen=True)
class WarmStart:
    """Hyperparameters of the warm start."""

    steps: int = 320
    batch: int = 16
    lr_vectors: float = 3e-3  # AdamW: embeddings, output layer, norms
    lr_matrices: float = 1e-2  # Muon: the layers' matrices
    warmup: int = 20
    decay: float = 0.9  # the learning rate falls over this share of the steps, at the end
    stories: int = 4000
    seed: int = 0


def encode(tokenizer: Any, messages: Sequence[Message], answer: str) -> tuple[list[int], list[int]]:
    """Prompt ids as generation sees them, and the ids of the answer with its end token."""
    text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    prompt: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    reply: list[int] = tokenizer(answer, add_special_tokens=False)["input_ids"]
    return prompt, [*reply, tokenizer.eos_token_id]


def collate(pairs: Sequence[tuple[list[int], list[int]]], pad: int) -> dict[str, torch.Tensor]:
    """Left-padded batch; labels are -100 outside the answers. All answers end at the right edge: few logits suffice."""
    left = partial(pad_sequence, batch_first=True, padding_side="left")
    ids = [torch.tensor(prompt + answer) for prompt, answer in pairs]
    labels = [torch.tensor([-100] * len(prompt) + answer) for prompt, answer in pairs]
    return {
        "input_ids": left(ids, padding_value=pad),
        "attention_mask": left([torch.ones_like(row) for row in ids]),
        "labels": left(labels, padding_value=-100),
    }


def answer_loss(model: Qwen3ForCausalLM, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy of the answers' tokens."""
    mask, labels = batch["attention_mask"], batch["labels"]
    keep = int((labels != -100).sum(1).max()) + 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    out = model(input_ids=batch["input_ids"], attention_mask=mask, position_ids=positions, logits_to_keep=keep)
    return torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1 - keep :].flatten())


def train(model_dir: str | Path, out_dir: str | Path, draw: Draw, how: WarmStart) -> float:
    """Train the model in `model_dir` on fresh prompts and answers (`draw`), and save it in `out_dir`.

    Returns:
        The mean loss of the last ten steps.
    """
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = Qwen3ForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    torch.manual_seed(how.seed)
    rng = random.Random(how.seed)
    optimizers = _optimizers(model, how)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda s: _rate(s, how)) for o in optimizers]
    losses: list[float] = []
    start = time.perf_counter()
    model.train()
    for step in range(1, how.steps + 1):
        batch = collate([encode(tokenizer, *draw(rng)) for _ in range(how.batch)], tokenizer.pad_token_id)
        loss = answer_loss(model, batch)
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in (*optimizers, *schedules):
            part.step()
        losses.append(float(loss.detach()))
        if step % 20 == 0 or step == how.steps:
            mean = sum(losses[-20:]) / len(losses[-20:])
            print(f"warm start {step}/{how.steps}  loss {mean:.3f}  {time.perf_counter() - start:.0f} s", flush=True)
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)
    return sum(losses[-10:]) / len(losses[-10:])


def _optimizers(model: Qwen3ForCausalLM, how: WarmStart) -> list[torch.optim.Optimizer]:
    # Muon on the layers' matrices: with AdamW alone, so small a model needs more steps to learn to look up places.
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        (matrices if weight.ndim == 2 and ".layers." in name else others).append(weight)
    return [
        torch.optim.Muon(matrices, lr=how.lr_matrices, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(others, lr=how.lr_vectors, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def _rate(step: int, how: WarmStart) -> float:
    # Warm-up, full rate, then linear decay to zero: a high rate at the end leaves the mixture's shares noisy, and a
    # long time at full rate delays the step at which the model learns to look up places.
    return min(1.0, (step + 1) / how.warmup, (how.steps - step) / (how.decay * how.steps))


def prepare(
    out: Path, how: WarmStart, forms: Sequence[Form] = (HITOM,), population: stories.Population = stories.USUAL
) -> None:
    """Write everything that the demo trains on: the rows of each form, base/ (random weights) and warm/."""
    records = stories.warm_records(how.stories, heldback=stories.write_files(out, forms=forms))
    rng = random.Random(how.seed)
    corpus = [stories.warm_sample(record, rng, form, population) for record in records[:1500] for form in forms]
    texts = [text for s in corpus for text in (s.messages[0]["content"], s.answer)]
    tiny_model.build(out / "base", texts, how.seed)

    def draw(rng: random.Random) -> tuple[list[Message], str]:
        sample = stories.warm_sample(rng.choice(records), rng, rng.choice(forms), population)
        return sample.messages, sample.answer

    train(out / "base", out / "warm", draw, how)
