"""What a seat keeps when its conversation grows beyond what may be trained.

The engine is a stand-in here; tests/e2e/test_tokens.py has the real one.
"""

import asyncio
from types import SimpleNamespace

import pytest

from ditto.rollout.token_seat import TokenSeat
from soul.errors import PolicyFailure

WORDS: dict[str, int] = {}


def ids(messages):
    """A token a word."""
    return [WORDS.setdefault(word, len(WORDS)) for m in messages for word in (m["role"], *m["content"].split())]


class Loop:
    """What `TokenSeat` uses of verl's agent loop; its model says four words a turn, or as many as it may."""

    def __init__(self, cached=()):
        self.asked: list[int] = []
        self.cached = iter(cached)  # tokens of each turn's prompt that the engine's prefix cache holds
        self.loop = SimpleNamespace(run_in_executor=self._run)
        self.continuous_token_builder = SimpleNamespace(build_initial_tokens=ids)
        self.server_manager = SimpleNamespace(generate=self._generate)
        added = {0: SimpleNamespace(content="<|im_end|>", special=True)}
        self.said = ["w1 w2 w3"]
        self.tokenizer = SimpleNamespace(
            decode=lambda found, **_: " ".join(list(WORDS)[i] for i in found), added_tokens_decoder=added
        )

    async def _run(self, _executor, work, *arguments):
        return work(*arguments)

    async def _generate(self, request_id, prompt_ids, sampling_params):
        self.asked.append(sampling_params["max_tokens"])
        said = ids([{"role": "w0", "content": self.said[-1]}])[: sampling_params["max_tokens"]]
        return SimpleNamespace(
            token_ids=said, log_probs=[-0.5] * len(said), stop_reason="stop", extra_fields=self._extra()
        )

    def _extra(self):
        return {"num_cached_tokens": next(self.cached, None)}

    async def ct_merge_context_msg(self, old, new, token_ids, mask, logprobs):
        added = ids(new[len(old) :])
        merged = SimpleNamespace(token_ids=[*token_ids, *added])
        return merged, [*mask, *[0] * len(added)], [*logprobs, *[0.0] * len(added)]


def talk(max_response, turns, others="one two three four five", cached=()):
    seat = TokenSeat(Loop(cached), {}, 100, max_response)
    messages = [{"role": "user", "content": "begin"}]
    said = []

    async def play():
        for _ in range(turns):
            said.append(await seat.say(messages))
            messages.extend([{"role": "assistant", "content": said[-1]}, {"role": "user", "content": others}])

    asyncio.run(play())
    return seat, said


def test_a_seat_without_room_is_silent_and_keeps_what_it_had():
    seat, said = talk(max_response=15, turns=5)  # turns of 4, and 6 between them
    assert said == ["w0 w1 w2 w3", "w0 w1 w2 w3", "", "", ""]
    (sequence,) = seat.sequences
    assert sequence.full and sequence.turns == 2
    assert sequence.response_mask == [1] * 4 + [0] * 6 + [1] * 4
    assert len(sequence.response_ids) == len(sequence.response_logprobs) == 14
    assert seat._loop.asked == [15, 5]


def test_a_sequence_counts_what_the_engine_read_and_what_its_prefix_cache_held():
    seat, _ = talk(max_response=30, turns=2, cached=(0, 5))
    (sequence,) = seat.sequences
    assert sequence.read_tokens == 2 * len(sequence.prompt_ids) + 10  # the second turn follows 4 + 6 tokens
    assert sequence.cached_tokens == 5
    seat, _ = talk(max_response=30, turns=2, cached=(3,))  # unknown for the second turn, so for the sequence
    assert seat.sequences[0].cached_tokens is None


def test_the_last_turn_takes_the_room_that_is_left():
    seat, said = talk(max_response=12, turns=3)
    assert said == ["w0 w1 w2 w3", "w0 w1", ""]
    assert len(seat.sequences[0].response_ids) == 12 and seat.sequences[0].full


def test_a_character_that_the_limit_cut_is_trained_and_not_said():
    loop = Loop()
    loop.tokenizer.decode = lambda found, **_: "na\ufffdve \ufffd\ufffd"
    seat = TokenSeat(loop, {}, 100, 100)
    assert asyncio.run(seat.say([{"role": "user", "content": "begin"}])) == "na\ufffdve "
    (sequence,) = seat.sequences
    assert len(sequence.response_ids) == sum(sequence.response_mask) == 4
    assert sequence.messages[-1]["content"] == "na\ufffdve "


def test_with_room_nothing_is_marked():
    seat, said = talk(max_response=100, turns=3)
    assert said == ["w0 w1 w2 w3"] * 3 and not seat.sequences[0].full


def test_a_first_prompt_that_does_not_fit_is_a_failure():
    seat = TokenSeat(Loop(), {}, 3, 100)
    with pytest.raises(PolicyFailure, match="more than 3"):
        asyncio.run(seat.say([{"role": "user", "content": "far too many words"}]))


def test_control_tokens_of_others_and_of_the_policy_itself_do_not_reach_a_prompt():
    """A model can also spell one with ordinary tokens; its turn stays what it sampled, and the sequence goes on."""
    loop = Loop()
    loop.said = ["<|im_end|> you"]
    seat = TokenSeat(loop, {}, 100, 100)
    messages = [{"role": "user", "content": "begin <|im_end|>"}]

    async def play():
        said = await seat.say(messages, [*messages])
        messages.extend([{"role": "assistant", "content": said}, {"role": "user", "content": "<|im_end|> bye"}])
        await seat.say(messages)
        return said

    assert asyncio.run(play()) == "w0 <|im_end|> you"
    (sequence,) = seat.sequences
    words = list(WORDS)
    assert [words[i] for i in sequence.prompt_ids] == ["user", "begin", "<|im_end|\u203a"]
    context = [
        words[i] for i, sampled in zip(sequence.response_ids, sequence.response_mask, strict=True) if not sampled
    ]
    assert context == ["user", "<|im_end|\u203a", "bye"] and sequence.prompt_ids == sequence.base_prompt_ids
