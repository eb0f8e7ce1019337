"""A sampler that takes the place of verl's rollout servers: plain transformers, in the trainer's own process.

`generate` is what `TokenSeat` calls of verl's `LLMServerClient`. Requests are answered in rounds: a round starts once
every open session waits for a turn, so that batches are as large as they can be and do not depend on the order in which
judges answer. Every request draws from a random stream of its own, named by the run's seed, its session and its prompt:
the same run gives the same samples.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from verl.workers.rollout.replica import TokenOutput

BATCH = 256  # rows of one forward pass
_SESSION: ContextVar[str] = ContextVar("session")


@dataclass
class Request:
    """A turn to sample.

    Attributes:
        name: of its random stream; the same in every repetition of the run.
        greedy: take the most probable token instead of sampling at temperature 1.
        most: tokens at most.
    """

    name: str
    prompt: tuple[int, ...]
    greedy: bool
    most: int
    answer: asyncio.Future[TokenOutput]

    def draws(self) -> list[float]:
        """A number in [0, 1) for each token."""
        stream = random.Random(self.name)
        return [stream.random() for _ in range(self.most)]


class LocalSampler:
    """Samples from a causal language model in float32, with a key-value cache.

    Args:
        model: a transformers model on the CPU.
        eos: ids that end a turn.
        seed: of all samples.
    """

    def __init__(self, model: Any, eos: Iterable[int], seed: int) -> None:
        self.model = model
        self.eos = torch.tensor(sorted(set(eos)))
        self.seed = seed
        self.version = 0  # the training step whose update the weights have seen
        self.tokens = 0  # sampled so far
        self._open: set[str] = set()
        self._waiting: list[tuple[str, Request]] = []
        self._asked: Counter[str] = Counter()

    # ---- sessions -----------------------------------------------------------------------------------------------

    def open(self, sessions: Iterable[str]) -> None:
        """Announce sessions, before any of them asks for a turn."""
        self._open.update(sessions)

    def enter(self, session: str) -> None:
        """Make this the session of the current task, and of the tasks that it creates."""
        _SESSION.set(session)

    def leave(self, session: str) -> None:
        """A session is over: the others no longer wait for it."""
        self._open.discard(session)
        self._sample_if_all_wait()

    async def generate(
        self, request_id: str, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], **_: Any
    ) -> TokenOutput:
        """Sample one turn (verl's `LLMServerClient.generate`).

        Raises:
            ValueError: the settings ask for another distribution than the model's own.
        """
        temperature = sampling_params.get("temperature", 1.0)
        if temperature not in (0, 1) or sampling_params.get("top_p", 1) != 1 or sampling_params.get("top_k", -1) > 0:
            raise ValueError("this sampler knows temperature 1 and greedy decoding only, without top_p and top_k")
        session, prompt = _SESSION.get(), tuple(prompt_ids)
        stream = f"{self.seed}:{self.version}:{session}:{prompt}"
        self._asked[stream] += 1
        request = Request(
            f"{stream}:{self._asked[stream]}",
            prompt,
            temperature == 0,
            int(sampling_params["max_tokens"]),
            asyncio.get_running_loop().create_future(),
        )
        self._waiting.append((session, request))
        self._sample_if_all_wait()
        return await request.answer

    def _sample_if_all_wait(self) -> None:
        if self._waiting and self._open <= {session for session, _ in self._waiting}:
            asyncio.get_running_loop().call_soon(self._sample_waiting)

    def _sample_waiting(self) -> None:
        requests = sorted((r for _, r in self._waiting), key=lambda r: (len(r.prompt), r.prompt, r.name))
        self._waiting = []
        for start in range(0, len(requests), BATCH):
            batch = requests[start : start + BATCH]
            try:
                outputs = self.sample(batch)
            except Exception as error:  # noqa: BLE001 - the sessions that asked get it, and record it
                for request in batch:
                    request.answer.set_exception(error)
                continue
            for request, output in zip(batch, outputs, strict=True):
                self.tokens += len(output.token_ids)
                request.answer.set_result(output)

    # ---- sampling -----------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def sample(self, requests: Sequence[Request]) -> list[TokenOutput]:
        """Answer requests in one batch. A prompt that several of them share is read once."""
        prompts = list(dict.fromkeys(request.prompt for request in requests))
        output, mask = self._read(prompts)
        place = {prompt: i for i, prompt in enumerate(prompts)}
        rows = torch.tensor([place[request.prompt] for request in requests])
        output.past_key_values.batch_select_indices(rows)
        mask, logits = mask[rows], output.logits[rows, -1]
        most = max(request.most for request in requests)
        draws = torch.tensor([[*r.draws(), *[0.0] * (most - r.most)] for r in requests], dtype=torch.float64)
        greedy = torch.tensor([request.greedy for request in requests])
        limits = torch.tensor([request.most for request in requests])
        alive = torch.arange(len(requests))  # the requests that the rows of the cache belong to
        ids: list[list[int]] = [[] for _ in requests]
        log_probs: list[list[float]] = [[] for _ in requests]
        for step in range(most):
            chosen, values = _choose(logits, draws[alive, step], greedy[alive])
            for i, token, value in zip(alive.tolist(), chosen.tolist(), values.tolist(), strict=True):
                ids[i].append(token)
                log_probs[i].append(value)
            kept = ~torch.isin(chosen, self.eos) & (limits[alive] > step + 1)
            if not kept.any():
                break
            if not kept.all():
                rows = kept.nonzero().squeeze(1)
                output.past_key_values.batch_select_indices(rows)
                alive, chosen, mask = alive[rows], chosen[rows], mask[rows]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            output = self.model(
                input_ids=chosen[:, None],
                attention_mask=mask,
                position_ids=mask.sum(1, keepdim=True) - 1,
                past_key_values=output.past_key_values,
                use_cache=True,
            )
            logits = output.logits[:, -1]
        step_range = {"min_global_steps": self.version, "max_global_steps": self.version}
        return [
            TokenOutput(token_ids=i, log_probs=p, stop_reason="completed", extra_fields=dict(step_range))
            for i, p in zip(ids, log_probs, strict=True)
        ]

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Any, Tensor]:
        """The model's output about left-padded prompts, and their mask."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1
        )
        return output, mask


def _choose(logits: Tensor, draws: Tensor, greedy: Tensor) -> tuple[Tensor, Tensor]:
    """A token for every row, and its log-prob.

    Args:
        logits: (rows, vocabulary).
        draws: (rows,), uniform in [0, 1): where in the cumulated distribution the sample lies.
        greedy: (rows,), bool.
    """
    log_probs = logits.double().log_softmax(-1)
    cumulated = log_probs.exp().cumsum(-1)
    # Scaled by the last sum, which rounding leaves next to 1, so that no draw lies beyond the last token.
    sampled = torch.searchsorted(cumulated, (draws * cumulated[:, -1])[:, None], right=True).squeeze(1)
    chosen = torch.where(greedy, log_probs.argmax(-1), sampled.clamp(max=logits.shape[-1] - 1))
    return chosen, log_probs.gather(1, chosen[:, None]).squeeze(1)
