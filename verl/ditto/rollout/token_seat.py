"""A seat of the policy during training: records the token ids and log-probs that the engine samples.

Every turn extends one token sequence with the sampled ids and log-probs; text is never tokenised again for training.
verl's continuous-token builder appends the messages of other speakers as context tokens with mask 0. If a task rewrites
messages that the seat has already seen, a new sequence of the same episode begins.

A seat that has used up its tokens stays silent from then on: the episode goes on without it and is judged as it is.
Masking the sequence instead would give the policy no signal against talking too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from ditto.model.control_tokens import ControlTokens
from soul.errors import PolicyFailure
from soul.message import Message


@dataclass
class TokenSequence:
    """One training sequence.

    Attributes:
        prompt_ids: the first prompt as the seat saw it, including feedback.
        base_prompt_ids: the same prompt without feedback (the base context).
        response_ids: everything after the prompt: sampled turns, and context between them.
        response_mask: 1 where the policy sampled the token.
        response_logprobs: the rollout engine's log-probs of sampled tokens, 0 elsewhere.
        messages: the conversation that the ids encode.
        turns: number of sampled turns.
        versions: first and last version (training step) of the weights that sampled it.
        full: there was no room for another turn, so nothing is added any more.
        opening: how many of the messages are in the prompt.
        has_log_probs: the engine returned log-probs for every turn.
        read_tokens: tokens that the engine had to read before it could sample, over all turns.
        cached_tokens: how many of them its prefix cache held; None if the engine does not say.
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
    opening: int = 0
    has_log_probs: bool = True
    read_tokens: int = 0
    cached_tokens: int | None = 0


class TokenSeat:
    """Implements `soul.policy.Seat` on verl's rollout server.

    Args:
        loop: the agent loop, for its server, tokenizer and continuous-token builder.
        sampling: verl's sampling parameters for this batch (validation has its own).
        max_prompt: most tokens of the first prompt in this context.
        max_response: most tokens of everything after it, over all turns.
    """

    def __init__(self, loop: AgentLoopBase, sampling: dict[str, Any], max_prompt: int, max_response: int) -> None:
        self._loop = loop
        self._sampling = sampling
        self._max_prompt = max_prompt
        self._max_response = max_response
        self._request_id = uuid4().hex  # one id per seat: the server keeps its prefix cache warm
        self._control = ControlTokens(loop.tokenizer)
        self.sequences: list[TokenSequence] = []

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        """Play a turn (see `soul.policy.Seat.say`). Returns "" if the sequence has no room for another turn."""
        messages, base = self._control.escape(list(messages)), self._control.escape(base and list(base))
        sequence = self._continued(messages)
        if sequence is None:
            sequence = await self._start(messages, base)
        elif sequence.full or not await self._append_context(sequence, messages):
            sequence.full = True
            return ""
        return await self._generate(sequence)

    def _continued(self, messages: Sequence[Message]) -> TokenSequence | None:
        """The last sequence if these messages extend it, else None."""
        if not self.sequences:
            return None
        known = self.sequences[-1].messages
        extends = len(messages) > len(known) and list(messages[: len(known)]) == known
        return self.sequences[-1] if extends else None

    async def _start(self, messages: Sequence[Message], base: Sequence[Message] | None) -> TokenSequence:
        prompt_ids = await self.render(messages)
        base_ids = prompt_ids if base is None or list(base) == list(messages) else await self.render(base)
        if len(prompt_ids) > self._max_prompt:
            raise PolicyFailure("too_long", f"the prompt has {len(prompt_ids)} tokens, more than {self._max_prompt}")
        sequence = TokenSequence(prompt_ids, base_ids, list(messages), opening=len(messages))
        self.sequences.append(sequence)
        return sequence

    async def render(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a prompt of these messages."""
        # Not ct_build_initial_tokens, which truncates long prompts from the left, so the instructions go first.
        build = self._loop.continuous_token_builder.build_initial_tokens
        ids = await self._loop.loop.run_in_executor(None, build, [dict(m) for m in messages])
        return list(ids)

    async def _append_context(self, sequence: TokenSequence, messages: Sequence[Message]) -> bool:
        """Add the other speakers' messages. If that leaves no room for a turn, adds nothing and returns False."""
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
        read = sequence.prompt_ids + sequence.response_ids
        try:
            output = await self._loop.server_manager.generate(
                request_id=self._request_id,
                prompt_ids=read,
                sampling_params={**self._sampling, "max_tokens": room},
            )
        except Exception as error:  # whatever the engine raises fails this session, with its cause
            raise PolicyFailure("policy", f"{type(error).__name__}: {error}") from error
        ids = list(output.token_ids)
        if not ids:
            raise PolicyFailure("policy", f"the engine returned no tokens (stop reason {output.stop_reason})")
        sequence.response_ids += ids
        sequence.response_mask += [1] * len(ids)
        sequence.response_logprobs += list(output.log_probs) if output.log_probs else [0.0] * len(ids)
        sequence.has_log_probs = sequence.has_log_probs and bool(output.log_probs)
        sequence.turns += 1
        self._note_version(sequence, output.extra_fields)
        cached = output.extra_fields.get("num_cached_tokens")
        sequence.read_tokens += len(read)
        sequence.cached_tokens = (
            None if cached is None or sequence.cached_tokens is None else sequence.cached_tokens + int(cached)
        )
        # The token limit can cut a turn inside a character, which then decodes to replacement characters. Servers never
        # send those, so strip them: training and evaluation must judge the same text.
        text = str(self._loop.tokenizer.decode(ids, skip_special_tokens=True)).rstrip("\ufffd")
        sequence.messages = [*sequence.messages, {"role": "assistant", "content": self._control.escape(text)}]
        return text

    @staticmethod
    def _note_version(sequence: TokenSequence, extra: dict[str, Any]) -> None:
        low, high = extra.get("min_global_steps"), extra.get("max_global_steps")
        if low is None or high is None:
            return
        if sequence.versions is not None:
            low, high = min(low, sequence.versions[0]), max(high, sequence.versions[1])
        sequence.versions = (int(low), int(high))
