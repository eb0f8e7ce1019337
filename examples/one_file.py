"""One step of DITTO in one file: drafts, verdicts in words, refined answers, advantages, loss, update.

    python examples/one_file.py --model HuggingFaceTB/SmolLM2-135M-Instruct --steps 3

It needs torch and transformers, and no judge: the verdicts here are a rule's. Read it before the product, which does
the same for 23 tasks, with real judges, Ray, FSDP and vLLM (`verl/ditto/`). tests/test_one_file.py holds the loss and
the gradients of this file equal to the product's.

For a prompt x, the policy pi samples n drafts y_i. A judge gives each a reward r_i and a critique in words, the
feedback f_i. The policy tries again with it: y'_i ~ pi(.|x, f_i), with reward r'_i. Then (DITTO, equations 5 to 10):

    joint group     drafts and refined answers of x, all in the context x       A  = (r - mean) / (std + eps)
    feedback group  refined answers of x, in the context (x, f_i)               A' = (r' - mean) / (std + eps)
    L_part = - mean over the part's tokens of min(rho A, clip(rho, 0.8, 1.28) A),  rho = pi(y_t|...) / pi_old(y_t|...)
    L      = L_joint + feedback_coef * L_feedback

The joint group is what teaches: a refined answer is reinforced in the context without the feedback that led to it.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
DUAL_CLIP = 10.0  # for A < 0 a token's term is at least DUAL_CLIP * A, as in verl
EPS = 1e-6

# ---- the task: answer as a person would who missed that a thing was moved --------------------------------------------

PEOPLE, THINGS, PLACES = ("Anna", "Ben", "Cleo"), ("key", "map", "ring"), ("box", "drawer", "basket", "bag")
FEW_WORDS = 12


@dataclass(frozen=True)
class Row:
    """A person, what happened, and the place that the person should name."""

    person: str
    story: str
    question: str
    answer: str


def make_row(chance: random.Random) -> Row:
    """A story in which somebody's thing is moved while they are away."""
    (one, other), thing = chance.sample(PEOPLE, 2), chance.choice(THINGS)
    first, second = chance.sample(PLACES, 2)
    story = f"{one} puts a {thing} in the {first} and goes home. Then {other} moves the {thing} to the {second}."
    return Row(one, story, f"{one}, where is your {thing}?", first)


def messages(row: Row, feedback: str = "") -> list[dict[str, str]]:
    """The prompt, without feedback (context x) or with it (context (x, f))."""
    text = f"{row.story}\nYou are {row.person}, and you did not see what happened after you left. {row.question}"
    if feedback:
        text += f"\nYour last answer was criticised: {feedback}"
    return [{"role": "user", "content": text}]


def judge(row: Row, text: str) -> tuple[float, str]:
    """The verdict of an answer: a reward from 0 to 1, and a critique that does not give the answer away."""
    words = re.findall(r"\w+", text.lower())
    places, brief = set(words) & set(PLACES), 0 < len(words) <= FEW_WORDS
    reward = 0.5 * (places == {row.answer}) + 0.2 * (row.answer in places) + 0.3 * brief
    faults = [] if brief else ["people answer such a question in a few words."]
    if places != {row.answer}:
        faults.append("name the one place where you would look, because you put it there yourself.")
    return reward, " ".join(faults) or "nothing; it is what a person would say."


# ---- sampling --------------------------------------------------------------------------------------------------------


@dataclass
class Attempt:
    """One answer of the policy, a draft or a refined one.

    Attributes:
        prompt: number of the prompt; attempts at the same prompt are compared.
        refined: whether it was sampled with feedback.
        reward: from the judge.
    """

    prompt: int
    refined: bool
    reward: float


@dataclass
class Sequence_:
    """An attempt in the context in which it is trained.

    Attributes:
        attempt: whose reward it has.
        in_feedback: whether its context holds the feedback.
        prompt_ids, response_ids: int64 token ids, of shapes (prompt,) and (response,).
        mask: bool, (response,): the tokens that the policy sampled.
        old: float, (response,): log pi_old of each response token in this context.
    """

    attempt: Attempt
    in_feedback: bool
    prompt_ids: Tensor
    response_ids: Tensor
    mask: Tensor
    old: Tensor = field(default_factory=lambda: torch.empty(0))


def encode(tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, str]]) -> Tensor:
    """The token ids of a prompt, int64 of shape (tokens,)."""
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return torch.tensor(tokenizer(text, add_special_tokens=False).input_ids)


@torch.no_grad()
def sample(model: PreTrainedModel, prompts: Sequence[Tensor], most_tokens: int) -> list[Tensor]:
    """One answer to each prompt at temperature 1, with the end token if the policy sampled it."""
    width, pad, end = max(map(len, prompts)), model.config.pad_token_id or 0, model.generation_config.eos_token_id
    ids = torch.stack([torch.cat([torch.full((width - len(p),), pad), p]) for p in prompts])  # padded on the left
    real = torch.stack([torch.arange(width) >= width - len(p) for p in prompts])
    given = dict(do_sample=True, temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=most_tokens, pad_token_id=pad)
    made = model.generate(ids, attention_mask=real.long(), **given)[:, width:]
    ends = torch.isin(made, torch.tensor(end))
    lengths = [int(e.int().argmax()) + 1 if e.any() else most_tokens for e in ends]
    return [answer[:length] for answer, length in zip(made, lengths, strict=True)]


def play(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Sequence[Row], drafts: int, most_tokens: int
) -> list[Sequence_]:
    """The sequences of a step: of each row `drafts` drafts, and a refined answer to each, which is in two contexts."""
    bases = [encode(tokenizer, messages(row)) for row in rows]
    numbers = [number for number in range(len(rows)) for _ in range(drafts)]
    made = sample(model, [bases[n] for n in numbers], most_tokens)
    verdicts = [
        judge(rows[n], tokenizer.decode(ids, skip_special_tokens=True)) for n, ids in zip(numbers, made, strict=True)
    ]
    with_feedback = [encode(tokenizer, messages(rows[n], v[1])) for n, v in zip(numbers, verdicts, strict=True)]
    again = sample(model, with_feedback, most_tokens)
    step = []
    for number, draft, (reward, _), prompt, refined in zip(numbers, made, verdicts, with_feedback, again, strict=True):
        second, _ = judge(rows[number], tokenizer.decode(refined, skip_special_tokens=True))
        everything = torch.ones(len(draft), dtype=torch.bool), torch.ones(len(refined), dtype=torch.bool)
        step.append(Sequence_(Attempt(number, False, reward), False, bases[number], draft, everything[0]))
        attempt = Attempt(number, True, second)
        step.append(Sequence_(attempt, False, bases[number], refined, everything[1]))
        step.append(Sequence_(attempt, True, prompt, refined, everything[1]))
    return step


# ---- learning --------------------------------------------------------------------------------------------------------


def log_probs(model: PreTrainedModel, sequence: Sequence_) -> Tensor:
    """log pi of each response token in the sequence's context, of shape (response,)."""
    ids = torch.cat([sequence.prompt_ids, sequence.response_ids])
    logits = model(input_ids=ids[None]).logits[0, len(sequence.prompt_ids) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, sequence.response_ids[:, None])[:, 0]


def advantages(attempts: Sequence[Attempt]) -> dict[int, float]:
    """(r - mean) / (std + eps) among the attempts at the same prompt, by the id of the attempt.

    The standard deviation is the unbiased one. A group of one, or without spread, gives no learning signal: 0.
    """
    groups: dict[int, dict[int, float]] = defaultdict(dict)
    for attempt in attempts:  # an attempt counts once, in however many sequences it is
        groups[attempt.prompt][id(attempt)] = attempt.reward
    values: dict[int, float] = {}
    for group in groups.values():
        rewards = torch.tensor(list(group.values()), dtype=torch.float64)
        spread = len(rewards) > 1 and bool((rewards != rewards[0]).any())
        normed = (rewards - rewards.mean()) / (rewards.std() + EPS) if spread else rewards * 0
        values |= dict(zip(group, normed.tolist(), strict=True))
    return values


def token_terms(new: Tensor, old: Tensor, advantage: float) -> Tensor:
    """min(rho A, clip(rho) A) of each token; for A < 0 no less than DUAL_CLIP * A."""
    ratio = (new - old).exp()
    terms = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantage)
    return terms.clamp(min=DUAL_CLIP * advantage) if advantage < 0 else terms


def backward(model: PreTrainedModel, step: Sequence[Sequence_], feedback_coef: float = 1.0) -> float:
    """Add the gradient of L to the parameters, one sequence at a time, and return L.

    The sum over sequences is exact because each part's number of tokens is known before the first forward pass.
    """
    loss = 0.0
    for in_feedback, weight in ((False, 1.0), (True, feedback_coef)):
        part = [sequence for sequence in step if sequence.in_feedback == in_feedback]
        tokens = sum(int(sequence.mask.sum()) for sequence in part)
        of_attempt = advantages([sequence.attempt for sequence in part])
        for sequence in part:
            advantage = of_attempt[id(sequence.attempt)]
            if advantage == 0:  # it gives no learning signal, and its tokens are in the mean already
                continue
            terms = token_terms(log_probs(model, sequence), sequence.old, advantage)
            term = -weight * (terms * sequence.mask).sum() / tokens
            term.backward()
            loss += term.item()
    return loss


def main() -> None:
    """Train for some steps, and print what each did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="a chat model, hub id or folder")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=2, help="of a step")
    parser.add_argument("--drafts", type=int, default=4, help="of a prompt")
    parser.add_argument("--tokens", type=int, default=24, help="of an answer at most")
    parser.add_argument("--lr", type=float, default=2e-6)
    args = parser.parse_args()

    torch.manual_seed(0)
    chance = random.Random(0)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()  # no dropout: rho starts at 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for number in range(1, args.steps + 1):
        rows = [make_row(chance) for _ in range(args.prompts)]
        step = play(model, tokenizer, rows, args.drafts, args.tokens)
        with torch.no_grad():  # pi_old, in the context that is trained: refined answers were sampled in another one
            for sequence in step:
                sequence.old = log_probs(model, sequence)
        loss = backward(model, step)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        drafts, refined = (
            [s.attempt.reward for s in step if s.attempt.refined == kind and not s.in_feedback]
            for kind in (False, True)
        )
        print(
            f"step {number}: reward of drafts {sum(drafts) / len(drafts):.2f}, of refined answers "
            f"{sum(refined) / len(refined):.2f}; loss {loss:.4f}, gradient norm {norm:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
