"""A seat of the policy during training: records the token ids and log-probs that the engine samples.

Every turn extends one token sequence with the sampled ids and log-probs; text is never tokenised again for training.
What the chat template writes between two turns follows as context tokens with mask 0, so that the model reads what a
server would show it (`soul.chat.rendering`). A new sequence of the same episode begins where that is impossible: the
task rewrites messages that the seat has seen, the template writes earlier turns differently once others follow, or the
sampled ids stand for another text than the one that the other speakers got.

A seat that has used up its tokens stays silent from then on: the episode goes on without it and is judged as it is.
Masking the sequence instead would give the policy no signal against talking too much.
"""

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from ditto.batch.sequence_record import SequenceRecord
from soul.chat.rendering import ChatRenderer
from soul.errors import PolicyFailure
from soul.message import Message


class TokenSeat:
    """Implements `soul.policy.Seat` on verl's rollout server.

    Args:
        loop: the agent loop, for its server.
        renderer: renders and decodes the conversation.
        sampling: verl's sampling parameters for this batch (validation has its own).
        max_prompt: most tokens of the first prompt in this context.
        max_response: most tokens of everything after it, over all turns.
        max_turn: most tokens of one turn.
    """

    def __init__(
        self,
        loop: AgentLoopBase,
        renderer: ChatRenderer,
        sampling: dict[str, Any],
        max_prompt: int,
        max_response: int,
        max_turn: int,
    ) -> None:
        self._loop, self._renderer = loop, renderer
        self._sampling = {**sampling, "stop_token_ids": sorted(renderer.stop_ids)}
        self._max_prompt = max_prompt
        self._max_response, self._max_turn = max_response, max_turn
        self._request_id = uuid4().hex  # one id per seat: the server keeps its prefix cache warm
        self.sequences: list[SequenceRecord] = []

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        """Play a turn (see `soul.policy.Seat.say`). Returns "" if the sequence has no room for another turn."""
        sequence = self.sequences[-1] if self.sequences else None
        known = sequence.messages if sequence else []
        if sequence is None or len(messages) <= len(known) or list(messages[: len(known)]) != known:
            sequence = await self._new(messages, base)
            length = len(sequence.prompt_ids)
            if length > self._max_prompt:
                raise PolicyFailure("too_long", f"the prompt has {length} tokens, more than {self._max_prompt}")
            self.sequences.append(sequence)
        elif not sequence.full:
            sequence = await self._grow(sequence, messages, base)
        return "" if sequence.full else await self._generate(sequence)

    async def _new(self, messages: Sequence[Message], base: Sequence[Message] | None) -> SequenceRecord:
        """A sequence whose prompt is the whole conversation so far."""
        text, prompt_ids = await self._rendered(messages)
        base_ids = prompt_ids if base is None or list(base) == list(messages) else await self.render(base)
        return SequenceRecord(
            *("draft", "", "", True),  # the agent loop says what it is
            prompt_ids=prompt_ids,
            base_prompt_ids=base_ids,
            messages=list(messages),
            prefix=len(messages),
            text=text,
        )

    async def render(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a prompt of these messages."""
        return (await self._rendered(messages))[1]

    async def _rendered(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        def work() -> tuple[str, list[int]]:
            text = self._renderer.text(messages)
            return text, self._renderer.ids(text)

        return await self._loop.loop.run_in_executor(None, work)

    async def _grow(
        self, sequence: SequenceRecord, messages: Sequence[Message], base: Sequence[Message] | None
    ) -> SequenceRecord:
        """Add the other speakers' messages, to a new sequence if need be; mark it full if no turn has room in it."""
        said = sequence.messages[-1]["content"]
        ids = sequence.prompt_ids + sequence.response_ids
        growth = (
            await self._loop.loop.run_in_executor(None, self._renderer.growth, sequence.text, ids, said, messages)
            if sequence.exact
            else None
        )
        if growth is None:
            new = await self._new(messages, base)
            if len(new.prompt_ids) > self._max_prompt:
                sequence.full = True
                return sequence
            self.sequences.append(new)
            return new
        if len(sequence.response_ids) + len(growth.ids) >= self._max_response:
            sequence.full = True
            return sequence
        sequence.response_ids += growth.ids
        sequence.response_mask += [0] * len(growth.ids)
        sequence.response_logprobs += [0.0] * len(growth.ids)
        sequence.messages, sequence.text = list(messages), growth.text
        return sequence

    async def _generate(self, sequence: SequenceRecord) -> str:
        room = min(self._max_turn, self._max_response - len(sequence.response_ids))
        began, start = time.time(), time.perf_counter()
        try:
            output = await self._loop.server_manager.generate(
                request_id=self._request_id,
                prompt_ids=sequence.prompt_ids + sequence.response_ids,
                sampling_params={**self._sampling, "max_tokens": room},
            )
        except Exception as error:  # whatever the engine raises fails this session, with its cause
            raise PolicyFailure("policy", f"{type(error).__name__}: {error}") from error
        finally:  # also if a deadline cancels the turn
            sequence.turn_times.append((began, time.perf_counter() - start))
        ids = list(output.token_ids)
        if not ids:
            raise PolicyFailure("policy", f"the engine returned no tokens (stop reason {output.stop_reason})")
        sequence.response_ids += ids
        sequence.response_mask += [1] * len(ids)
        sequence.response_logprobs += list(output.log_probs) if output.log_probs else [0.0] * len(ids)
        sequence.has_log_probs = sequence.has_log_probs and bool(output.log_probs)
        sequence.turns += 2  # a message that it read, and this one
        sequence.tokens += len(ids)
        version = output.extra_fields.get("min_global_steps"), output.extra_fields.get("max_global_steps")
        if None not in version:
            known = sequence.versions or version
            sequence.versions = (int(min(version[0], known[0])), int(max(version[1], known[1])))
        sequence.cut = sequence.cut or ids[-1] not in self._renderer.stop_ids
        text, sequence.exact = self._renderer.decode(ids)
        sequence.messages = [*sequence.messages, {"role": "assistant", "content": text}]
        return text
