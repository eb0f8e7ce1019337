"""A real pretrained model learns to write the first message of a person to an AI assistant.

The people are MirrorBench's (github.com/SAP/mirrorbench, scratch_pad/data): a sentence says what a person wants, and
the record holds what the person really typed. Reward and critique are rules:

    reward    0 if the text speaks as the assistant or about the user; else (2 F1 + brevity) / 3, with F1 of the
              content words that text and message share, and brevity = shorter / longer of their numbers of words
    critique  which of speaker, length and subject is wrong. It tells the person's number of words, and no word

A chat model speaks as the assistant, and one of 135 million parameters makes no use of advice: so a short supervised
warm start comes first. Without advice it imitates the model's own drafts, and the person in one of ten rows; with
advice mostly the person. Then the model knows how people write, does so when it is told, and seldom by itself.
"""

import json
import random
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from data.mirrorbench import fields_of
from data.reading import read_json_lines
from data.rows import write_rows
from recipe.demo.warm_start import answer_loss, collate, encode
from soul.files.line_file import read_lines
from soul.function_task import PromptRow, function_task
from soul.metrics.lexical import content_words
from soul.rows.task_files import read_rows

SOURCES = ("clariq", "oasst1", "chatbot_arena")  # Qulac's people answer a question first
WORDS = (3, 25)  # fewest and most words of a message
HELD_BACK, WARM = 48, 128  # fewest rows of these parts; a topic is in one part only, and training gets the rest
MAX_NEW_TOKENS = 24
STEPS, BATCH, RATE = 20, 16, 1e-4
PERSON = 0.1  # share of the people among the warm start's answers without advice
ADVISED = 0.85  # and with advice
# Beside the demo's config: one update a step, so that no pass is needed for pi_old.
OVERRIDES = (
    *("data.max_prompt_length=128", "data.max_feedback_length=96", f"data.max_response_length={MAX_NEW_TOKENS}"),
    *("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.rollout.n=6"),
    *("actor_rollout_ref.actor.optim.lr=3e-5", "trainer.test_freq=12", "trainer.val_before_train=true"),
    "actor_rollout_ref.rollout.val_kwargs.n=2",
    # A step's sequences are short: in pieces of this size they fit into memory without a second forward pass.
    *(
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048",
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    ),
)
_ASSISTANT = re.compile(
    r"\b(the user|(help|assist) you|i'd be happy|i'm (glad|happy|here)|(i can|let me) (help|assist|know)|sure|"
    r"certainly|of course|welcome|feel free|as an ai|language model|how (can|may) i)\b",
    re.IGNORECASE,
)


def overlap(text: str, message: str) -> float:
    """F1 of the different content words of two texts."""
    one, other = set(content_words(text)), set(content_words(message))
    return 2 * len(one & other) / max(1, len(one) + len(other))


def reward(row: PromptRow, text: str) -> float:
    """The likeness of a text to what the person typed."""
    if _ASSISTANT.search(text):
        return 0.0
    shorter, longer = sorted((len(text.split()), len(row.answer.split())))
    return (2 * overlap(text, row.answer) + shorter / longer) / 3


def critique(row: PromptRow, text: str) -> str:
    """The faults of a text."""
    written, typed = len(text.split()), len(row.answer.split())
    faults = []
    if _ASSISTANT.search(text):
        faults.append("That is how an assistant talks. You are the user: say what you want.")
    if not typed / 1.5 <= written <= typed * 1.5:
        faults.append(f"Too {'long' if written > typed else 'short'}: this person types {typed} words.")
    if overlap(text, row.answer) < 0.25:
        faults.append("Name the subject itself.")
    return " ".join(faults) or "Good: keep it like this."


FirstMessage = function_task("first_message", reward, critique)


def records(folder: Path) -> list[dict[str, Any]]:
    """The people whose first message is one line of some words, from MirrorBench's files in a folder."""
    found = []
    for name in SOURCES:
        for where, raw in read_json_lines(folder / f"{name}_mirror.jsonl"):
            first, group = raw["turns"][0], fields_of(where, raw)["group"]
            message = first["content"].strip()
            if first["role"] != "user" or "\n" in message or not WORDS[0] <= len(message.split()) <= WORDS[1]:
                continue
            wish = re.split(r"(?<=[.!?])\s", raw["task_description"].strip())[0]
            prompt = f"{wish}\nYou are this user. Write your first message to the AI assistant, and nothing else."
            found.append({"question": prompt, "prompt": prompt, "answer": message, "group": group})
    return found


def split(people: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The records of each part, in random order; a topic is in one part only."""
    topics = sorted({person["group"] for person in people})
    random.Random(0).shuffle(topics)
    parts: dict[str, list[dict[str, Any]]] = {"heldback": [], "warm": [], "train": []}
    for topic in topics:
        name = "heldback" if len(parts["heldback"]) < HELD_BACK else "warm" if len(parts["warm"]) < WARM else "train"
        parts[name] += [{**person} for person in people if person["group"] == topic]
    for part in parts.values():
        random.Random(0).shuffle(part)
    return parts


def register(folder: Path) -> str:
    """Register this module's task as an installer would, here and, with the returned PYTHONPATH, in other processes."""
    info = folder / "plugin" / "first_message-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: first-message\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[soul.tasks]\nfirst_message = recipe.demo.first_message:FirstMessage\n")
    sys.path.append(str(info.parent))
    return f"{info.parent}:{Path(__file__).resolve().parents[2]}"


def show(rows: Path, run: Path, count: int = 3) -> None:
    """Print held-back people: a draft before training, its critique, a draft after, and what the person typed."""
    people = [cast(PromptRow, row.row) for row in read_rows([str(rows)])]
    files = sorted((run / "traces").glob("val_*"))
    before, after = ([json.loads(line.text) for line in read_lines(file)] for file in (files[0], files[-1]))
    for person in people[:count]:
        drafts = [_draft(traces, person) for traces in (before, after)]
        print(f"\n{person.prompt.splitlines()[0]}\n  before    {drafts[0]}\n  critique  {critique(person, drafts[0])}")
        print(f"  after     {drafts[1]}\n  person    {person.answer}")


def _draft(traces: Sequence[Mapping[str, Any]], person: PromptRow) -> str:
    """The first draft for a person among the traces of a validation."""
    chats = (trace["draft"]["seats"]["policy"] for trace in traces)
    return next(str(chat[-1]["content"]) for chat in chats if person.prompt in chat[-2]["content"])


def prepare(out: Path, model_dir: str | Path, source: Path) -> None:
    """Write train.parquet, heldback.parquet and warm/, the model that begins to listen to advice."""
    parts = split(records(source))
    for name in ("train", "heldback"):
        write_rows(out / f"{name}.parquet", "first_message", [{"index": i, **r} for i, r in enumerate(parts[name])])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    tokenizer.eos_token_id = tokenizer.pad_token_id = model.generation_config.eos_token_id  # it may name another one
    people = [PromptRow.model_validate({"index": i, **r}) for i, r in enumerate(parts["warm"])]
    drafts = _drafts(model, tokenizer, people)
    rng, optimizer = random.Random(0), torch.optim.AdamW(model.parameters(), lr=RATE)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    for step in range(STEPS):
        pairs = [_sample(rng, people, drafts) for _ in range(BATCH)]
        loss = answer_loss(model, collate([encode(tokenizer, *pair) for pair in pairs], tokenizer.pad_token_id))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        optimizer.zero_grad()
        print(f"warm start {step + 1}/{STEPS}  loss {loss.item():.3f}", flush=True)
    model.save_pretrained(out / "warm")
    tokenizer.save_pretrained(out / "warm")


@torch.no_grad()
def _drafts(model: Any, tokenizer: Any, people: Sequence[PromptRow]) -> list[str]:
    """One draft of the untrained model for each person, at a temperature at which it writes sentences."""
    texts = []
    for start in range(0, len(people), 32):
        chats = [FirstMessage().prompt(person) for person in people[start : start + 32]]
        batch = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, return_tensors="pt", return_dict=True, padding=True
        )
        out = model.generate(**batch, do_sample=True, temperature=0.6, top_k=0, max_new_tokens=MAX_NEW_TOKENS)
        texts += tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


def _sample(rng: random.Random, people: Sequence[PromptRow], drafts: Sequence[str]) -> tuple[Any, str]:
    """A prompt and an answer of the warm start. Advice is on a draft, on the person's message, or on another's."""
    number = rng.randrange(len(people))
    person, advice, share = people[number], None, PERSON
    if rng.random() < 0.5:
        attempt = rng.choice((drafts[number], drafts[number], person.answer, rng.choice(people).answer))
        advice, share = critique(person, attempt), ADVISED
    return FirstMessage().prompt(person, advice), person.answer if rng.random() < share else drafts[number]
