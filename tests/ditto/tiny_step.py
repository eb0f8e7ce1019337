"""A training step of a tiny model, and its loss by the equations.

`SEQUENCES` is a step of five prompts, three to a mini-batch, with everything that can happen in one: drafts, refined
answers in both contexts, two-turn answers whose middle is context, an episode of two seats, a failed session, a group
without spread, groups of one (of refined answers, and of everything). `equations` computes loss and gradients from the
paper's equations alone, in float64, with plain loops over sequences and tokens; it uses nothing of ditto and nothing of
verl.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from ditto.model import attention
from ditto.model.chunked_head import with_chunked_head

VOCAB, EOS = 48, 1
KL_COEF, ENTROPY_COEF = 0.3, 0.2
PROMPTS_PER_MINI_BATCH = 3
LOSS_SCALE = 16.0  # verl's loss_scale_factor


@dataclass(frozen=True)
class Sequence_:
    """One training sequence: its record, and its tokens (mask: 1 = sampled by the policy)."""

    kind: str
    prompt: str
    session: str
    episode: str
    reward: float
    valid: bool
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: tuple[int, ...]


def _build() -> Iterator[Sequence_]:
    chance = random.Random(7)

    def tokens(low: int, high: int) -> tuple[int, ...]:
        return tuple(chance.randrange(2, VOCAB) for _ in range(chance.randint(low, high)))

    def turns(count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids and mask of an answer of several turns: between two turns lies context that the policy did not sample."""
        ids: tuple[int, ...] = ()
        mask: tuple[int, ...] = ()
        for turn in range(count):
            sampled, context = tokens(1, 7), tokens(1, 4) if turn < count - 1 else ()
            ids, mask = ids + sampled + context, mask + (1,) * len(sampled) + (0,) * len(context)
        return ids, mask

    def attempt(
        prompt: str, session: int, reward: float, context: tuple[int, ...], *, refined: bool, seats: int, count: int
    ) -> Iterator[Sequence_]:
        name, episode = f"{prompt}_{session}", f"{prompt}_{session}_{'refined' if refined else 'draft'}"
        for _ in range(seats):
            ids, mask = turns(count)
            kinds = [("refined_base", context), ("refined_feedback", context + tokens(2, 5))]
            for kind, prompt_ids in kinds if refined else [("draft", context)]:
                yield Sequence_(kind, prompt, name, episode, reward, True, prompt_ids, ids, mask)

    def failed(prompt: str, session: int) -> Sequence_:
        name = f"{prompt}_{session}"
        return Sequence_("none", prompt, name, name, 0.0, False, (EOS,), (EOS,), (0,))

    # prompt: (seats, sessions); a session: (draft reward, refined reward or None, turns) or None where it failed
    plan: dict[str, tuple[int, list[tuple[float, float | None, int] | None]]] = {
        "a": (1, [(0.1, 0.7, 1), (0.45, 0.4, 1), (0.3, 0.9, 2), (0.8, None, 1)]),
        "b": (2, [(0.2, 0.6, 2), (0.5, 0.55, 1), None]),  # two seats: two sequences, one reward
        "c": (1, [(0.5, 0.5, 1), (0.5, 0.5, 2)]),  # no spread: trained with advantage 0
        "d": (1, [(0.0, 1.0, 1), (0.25, None, 1), None]),  # a feedback group of one
        "e": (1, [(0.6, None, 2), None]),  # one draft, never refined: every group is of one
    }
    for prompt, (seats, sessions) in plan.items():
        context = tokens(3, 8)
        for number, session in enumerate(sessions):
            if session is None:
                yield failed(prompt, number)
                continue
            draft, refined, count = session
            yield from attempt(prompt, number, draft, context, refined=False, seats=seats, count=count)
            if refined is not None:
                yield from attempt(prompt, number, refined, context, refined=True, seats=seats, count=count)


SEQUENCES: tuple[Sequence_, ...] = tuple(_build())


def sequences(objective: str) -> list[Sequence_]:
    """The sequences that an objective builds: grpo has no refined ones."""
    return [s for s in SEQUENCES if objective == "ditto" or s.kind in ("draft", "none")]


def tiny_model(seed: int = 0, *, head: bool = False, hidden: int = 16) -> Qwen3ForCausalLM:
    """A random Qwen3 of two layers in float64, peaked enough that its log-probs differ from token to token.

    With `head`, the same weights and the chunked head.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        initializer_range=0.3,
        attn_implementation=attention.NAME,
        eos_token_id=EOS,
        pad_token_id=0,
        bos_token_id=None,
    )
    kind = with_chunked_head(Qwen3ForCausalLM) if head else Qwen3ForCausalLM
    return kind(config).double().eval()


# ---- the equations ----------------------------------------------------------------------------------------------


def log_probs(model: torch.nn.Module, sequence: Sequence_) -> list[Tensor]:
    """log pi(y_t | context, y_<t) of every response token, by a log-softmax of its own."""
    ids = sequence.prompt_ids + sequence.response_ids
    logits = model(input_ids=torch.tensor([ids])).logits[0]
    values = []
    for position in range(len(sequence.prompt_ids), len(ids)):
        row = logits[position - 1]
        top = row.max().detach()
        values.append(row[ids[position]] - top - torch.log(torch.exp(row - top).sum()))
    return values


def entropy(model: torch.nn.Module, sequence: Sequence_) -> list[Tensor]:
    """- sum over words of p log p, at every response token."""
    ids = sequence.prompt_ids + sequence.response_ids
    rows = model(input_ids=torch.tensor([ids])).logits[0][len(sequence.prompt_ids) - 1 : len(ids) - 1]
    log_p = [row - torch.log(torch.exp(row - row.max().detach()).sum()) - row.max().detach() for row in rows]
    return [-(torch.exp(words) * words).sum() for words in log_p]


def perturbed(log_prob: float, sequence: int, token: int) -> float:
    """An old log-prob that gives ratios below, inside and above the clipping range, and some above c = 10."""
    return log_prob - (0.0, 0.1, -0.1, 0.4, -0.6, math.log(14.0), -3.0)[(3 * sequence + token) % 7]


@dataclass
class Counts:
    """How many tokens each clip bounded, so that a test can check that the clips were active."""

    low: int = 0
    high: int = 0
    dual: int = 0


def equations(
    model: torch.nn.Module,
    rows: Sequence[Sequence_],
    old: Sequence[Sequence[float]],
    *,
    objective: str,
    feedback_coef: float,
    loss_agg_mode: str,
    counts: Counts | None = None,
    reference: Callable[[int, int], float] | None = None,
) -> Tensor:
    """The loss of ONE mini-batch whose rows are `rows`, by the equations below (DITTO paper, equations 5 to 10).

    With `reference` (row, token -> log-prob of the reference policy) a KL and an entropy term are added, each over all
    sequences of the mini-batch that are trained:  L + KL_COEF * agg of (log pi - log ref) - ENTROPY_COEF * agg of H.

    joint group   G(x) = {(x, y_i, r_i)} u {(x, y'_i, r'_i)}       A  = (r - mean_G) / (std_G + eps)
    feedback group F(x) = {((x, f_i), y'_i, r'_i)}                 A' = (r' - mean_F) / (std_F + eps)
    L_part = - agg of min(rho A, clip(rho, 0.8, 1.28) A), for A < 0 no less than c A with c = 10 (dual clip)
    L = L_joint + feedback_coef * L_feedback
    """
    parts = {"grpo": {"joint": ["draft"]}}.get(
        objective, {"joint": ["draft", "refined_base"], "feedback": ["refined_feedback"]}
    )
    loss = torch.zeros((), dtype=torch.float64)
    if reference is not None:
        loss = loss + _kl_and_entropy(model, rows, loss_agg_mode, reference)
    for part, kinds in parts.items():
        members = [i for i, s in enumerate(rows) if s.valid and s.kind in kinds]
        terms: list[list[Tensor]] = []
        for i in members:
            advantage = _advantage(rows[i], [rows[j] for j in members])
            terms.append([])
            for t, (new, sampled) in enumerate(zip(log_probs(model, rows[i]), rows[i].mask, strict=True)):
                if sampled:
                    terms[-1].append(_token(new, old[i][t], advantage, counts))
        loss = loss - (1.0 if part == "joint" else feedback_coef) * _aggregate(terms, loss_agg_mode)
    return loss


def _aggregate(terms: Sequence[Sequence[Tensor]], loss_agg_mode: str) -> Tensor:
    """The mean over the tokens of all sequences, or over sequences of each one's mean, sum or scaled sum."""
    if loss_agg_mode == "token-mean":
        everything = [term for sequence in terms for term in sequence]
        return sum(everything) / len(everything)
    if loss_agg_mode == "seq-mean-token-mean":
        return sum(sum(sequence) / len(sequence) for sequence in terms) / len(terms)
    scale = {"seq-mean-token-sum": 1.0, "seq-mean-token-sum-norm": LOSS_SCALE}[loss_agg_mode]
    return sum(sum(sequence) for sequence in terms) / len(terms) / scale


def _kl_and_entropy(
    model: torch.nn.Module, rows: Sequence[Sequence_], loss_agg_mode: str, reference: Callable[[int, int], float]
) -> Tensor:
    kls, entropies = [], []
    for i, row in enumerate(rows):
        if not row.valid:
            continue
        new, spread = log_probs(model, row), entropy(model, row)
        sampled = [t for t, mask in enumerate(row.mask) if mask]
        kls.append([new[t] - reference(i, t) for t in sampled])
        entropies.append([spread[t] for t in sampled])
    return KL_COEF * _aggregate(kls, loss_agg_mode) - ENTROPY_COEF * _aggregate(entropies, loss_agg_mode)


def _advantage(sequence: Sequence_, members: Sequence[Sequence_]) -> float:
    """Group statistics over the prompt's episodes; an episode with several sequences counts once."""
    reward_of = {s.episode: s.reward for s in members if s.prompt == sequence.prompt}
    rewards = list(reward_of.values())
    mean = sum(rewards) / len(rewards)
    if len(rewards) == 1 or all(r == rewards[0] for r in rewards):
        return 0.0
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    return (sequence.reward - mean) / (std + 1e-6)


def _token(new: Tensor, old: float, advantage: float, counts: Counts | None) -> Tensor:
    rho = torch.exp(new - old)
    clipped = min(max(rho.item(), 1 - 0.2), 1 + 0.28) * advantage
    if rho.item() * advantage <= clipped:
        objective = rho * advantage
    else:
        objective = torch.tensor(clipped, dtype=torch.float64)
        if counts:
            counts.low += rho.item() < 0.8
            counts.high += rho.item() > 1.28
    if advantage < 0 and objective.item() < 10 * advantage:
        objective = torch.tensor(10 * advantage, dtype=torch.float64)
        if counts:
            counts.dual += 1
    return objective


def old_log_probs(
    model: torch.nn.Module, rows: Sequence[Sequence_], change: Callable[[float, int, int], float] | None
) -> list[list[float]]:
    """pi_old of every response token: what the model says now (ratio 1), or changed token by token."""
    with torch.no_grad():
        now = [[value.item() for value in log_probs(model, s)] for s in rows]
    if change is None:
        return now
    return [[change(value, i, t) for t, value in enumerate(values)] for i, values in enumerate(now)]


def mini_batches(rows: Sequence[Sequence_], prompts: int = PROMPTS_PER_MINI_BATCH) -> list[list[int]]:
    """Positions of each mini-batch's rows: prompts in order of appearance, so many to a mini-batch."""
    order = list(dict.fromkeys(s.prompt for s in rows))
    home = {prompt: number // prompts for number, prompt in enumerate(order)}
    return [[i for i, s in enumerate(rows) if home[s.prompt] == m] for m in range(max(home.values()) + 1)]
