"""A seat of the policy that keeps what was sampled: tokens in, tokens out.

Every turn extends one token sequence with the ids and log-probs that the engine sampled; text is never tokenised
again for training. What others said in between is appended as context tokens with mask 0, by verl's continuous-token
builder. A task that rewrites what the seat saw starts a new sequence of the same episode.

A seat that has used up its tokens is silent from then on: the episode goes on without it and is judged as it is.
Masking it instead would tell the policy nothing about talking too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from soul.errors import PolicyFailure
from soul.task import Message


@dataclass
class TokenSequence:
    """One training sequence.

    Attributes:
        prompt_ids: the first prompt as the seat saw it (feedback included).
        base_prompt_ids: the same prompt without feedback: the base context.
        response_ids: everything after the prompt, sampled turns and context alike.
        response_mask: 1 where the policy sampled the token.
        response_logprobs: log-probs of the sampled tokens under the rollout engine, 0 elsewhere.
        messages: the conversation that the ids stand for.
        turns: sampled turns.
        versions: first and last model version (training step of the weights) that sampled here.
        full: there was no room for another turn; nothing was added since.
    """

    prompt_ids: list[int]
    base_prompt_ids: list[int]
    messages: list[Message]
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    response_logprobs: list[float] = field(default_factory=list)
    turns: int = 0
    versions: tuple[int, int] | None = None
    full: bool = False


class TokenSeat:
    """Implements `soul.policy.Seat` on verl's rollout server.

    Args:
        loop: the agent loop that gives the server, the tokenizer and the continuous-token builder.
        sampling: verl's sampling parameters of this batch (validation has its own).
        max_prompt: tokens the first prompt may have in this context.
        max_response: tokens everything after it may have, over all turns.
    """

    def __init__(self, loop: AgentLoopBase, sampling: dict[str, Any], max_prompt: int, max_response: int) -> None:
        self._loop = loop
        self._sampling = sampling
        self._max_prompt = max_prompt
        self._max_response = max_response
        self._request_id = uuid4().hex  # one id per seat: the server keeps its prefix cache warm
        self.sequences: list[TokenSequence] = []

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        """See `soul.policy.Seat.say`. "" where the sequence has no room for another turn."""
        sequence = self._continued(messages)
        if sequence is None:
            sequence = await self._start(messages, base)
        elif sequence.full or not await self._append_context(sequence, messages):
            sequence.full = True
            return ""
        return await self._generate(sequence)

    def _continued(self, messages: Sequence[Message]) -> TokenSequence | None:
        """The sequence that these messages extend, if they extend the last one."""
        if not self.sequences:
            return None
        known = self.sequences[-1].messages
        extends = len(messages) > len(known) and list(messages[: len(known)]) == known
        return self.sequences[-1] if extends else None

    async def _start(self, messages: Sequence[Message], base: Sequence[Message] | None) -> TokenSequence:
        prompt_ids = await self._render(messages)
        base_ids = prompt_ids if base is None or list(base) == list(messages) else await self._render(base)
        if len(prompt_ids) > self._max_prompt:
            raise PolicyFailure("too_long", f"the prompt has {len(prompt_ids)} tokens, more than {self._max_prompt}")
        sequence = TokenSequence(prompt_ids, base_ids, list(messages))
        self.sequences.append(sequence)
        return sequence

    async def _render(self, messages: Sequence[Message]) -> list[int]:
        # Not ct_build_initial_tokens: that one cuts long prompts from the left, instructions first.
        build = self._loop.continuous_token_builder.build_initial_tokens
        ids = await self._loop.loop.run_in_executor(None, build, [dict(m) for m in messages])
        return list(ids)

    async def _append_context(self, sequence: TokenSequence, messages: Sequence[Message]) -> bool:
        """Add what others said; False, and nothing is added, where that leaves no room for a turn."""
        merged, mask, logprobs = await self._loop.ct_merge_context_msg(
            [dict(m) for m in sequence.messages],
            [dict(m) for m in messages],
            sequence.prompt_ids + sequence.response_ids,
            sequence.response_mask,
            sequence.response_logprobs,
        )
        response_ids = list(merged.token_ids[len(sequence.prompt_ids) :])
        if len(response_ids) >= self._max_response:
            return False
        sequence.response_ids = response_ids
        sequence.response_mask, sequence.response_logprobs = list(mask), list(logprobs)
        sequence.messages = list(messages)
        return True

    async def _generate(self, sequence: TokenSequence) -> str:
        room = self._max_response - len(sequence.response_ids)
        try:
            output = await self._loop.server_manager.generate(
                request_id=self._request_id,
                prompt_ids=sequence.prompt_ids + sequence.response_ids,
                sampling_params={**self._sampling, "max_tokens": room},
            )
        except Exception as error:  # whatever the engine raises, it is this session's failure and names its cause
            raise PolicyFailure("policy", f"{type(error).__name__}: {error}") from error
        ids = list(output.token_ids)
        if not ids:
            raise PolicyFailure("policy", f"the engine returned no token (stop reason {output.stop_reason})")
        sequence.response_ids += ids
        sequence.response_mask += [1] * len(ids)
        sequence.response_logprobs += list(output.log_probs) if output.log_probs else [0.0] * len(ids)
        sequence.turns += 1
        self._note_version(sequence, output.extra_fields)
        # A limit can cut a turn inside a character. Its rest decodes to replacement characters, which no server sends:
        # so training and evaluation judge the same text.
        text = str(self._loop.tokenizer.decode(ids, skip_special_tokens=True)).rstrip("\ufffd")
        sequence.messages = [*sequence.messages, {"role": "assistant", "content": text}]
        return text

    @staticmethod
    def _note_version(sequence: TokenSequence, extra: dict[str, Any]) -> None:
        low, high = extra.get("min_global_steps"), extra.get("max_global_steps")
        if low is None or high is None:
            return
        if sequence.versions is not None:
            low, high = min(low, sequence.versions[0]), max(high, sequence.versions[1])
        sequence.versions = (int(low), int(high))
