"""What a seat keeps when its conversation grows beyond what may be trained.

The engine is a stand-in here; tests/e2e/test_tokens.py has the real one.
"""

import asyncio
from types import SimpleNamespace

import pytest

from ditto.rollout.token_seat import TokenSeat
from soul.chat.control_tokens import ControlTokens
from soul.chat.rendering import ChatRenderer
from soul.errors import PolicyFailure

pytestmark = pytest.mark.smoke

WORDS: dict[str, int] = {}


class Words:
    """A tokenizer with a token a word, whose template writes the roles of the other speakers."""

    added_tokens_decoder = {}

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return "".join(f"{'' if m['role'] == 'assistant' else m['role'] + ' '}{m['content']} " for m in messages)

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [WORDS.setdefault(word, len(WORDS)) for word in text.split()]}

    def decode(self, ids, skip_special_tokens):
        return " ".join(list(WORDS)[i] for i in ids)


class Loop:
    """What `TokenSeat` uses of verl's agent loop; its model says four words a turn, or as many as it may."""

    def __init__(self):
        self.asked: list[int] = []
        self.loop = SimpleNamespace(run_in_executor=self._run)
        self.server_manager = SimpleNamespace(generate=self._generate)

    async def _run(self, _executor, work, *arguments):
        return work(*arguments)

    async def _generate(self, request_id, prompt_ids, sampling_params):
        self.asked.append(sampling_params["max_tokens"])
        said = Words()("w0 w1 w2 w3", False)["input_ids"][: sampling_params["max_tokens"]]
        return SimpleNamespace(token_ids=said, log_probs=[-0.5] * len(said), stop_reason="stop", extra_fields={})


def seat_of(loop, max_prompt=100, max_response=100, tokenizer=None, max_turn=100):
    return TokenSeat(loop, ChatRenderer(tokenizer or Words(), ()), {}, max_prompt, max_response, max_turn)


def talk(max_response, turns, others="one two three four five", max_turn=100):
    seat = seat_of(Loop(), max_response=max_response, max_turn=max_turn)
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
    assert sequence.full and sequence.turns == 4 and sequence.tokens == sum(sequence.response_mask)
    assert sequence.response_mask == [1] * 4 + [0] * 6 + [1] * 4
    assert len(sequence.response_ids) == len(sequence.response_logprobs) == 14
    assert seat._loop.asked == [15, 5]


def test_a_turn_that_does_not_end_leaves_room_for_the_next():
    seat, said = talk(max_response=19, turns=3, max_turn=3)
    assert said == ["w0 w1 w2"] * 2 + ["w0"] and seat._loop.asked == [3, 3, 1]
    assert seat.sequences[0].response_mask == [1] * 3 + [0] * 6 + [1] * 3 + [0] * 6 + [1]


def test_a_character_that_the_limit_cut_is_trained_and_not_said():
    tokenizer = Words()
    tokenizer.decode = lambda found, **_: "na\ufffdve \ufffd\ufffd"
    seat = seat_of(Loop(), tokenizer=tokenizer)
    assert asyncio.run(seat.say([{"role": "user", "content": "begin"}])) == "na\ufffdve "
    (sequence,) = seat.sequences
    assert len(sequence.response_ids) == sum(sequence.response_mask) == 4
    assert sequence.messages[-1]["content"] == "na\ufffdve " and not sequence.exact


def test_a_first_prompt_that_does_not_fit_is_a_failure():
    seat = seat_of(Loop(), max_prompt=3)
    with pytest.raises(PolicyFailure, match="more than 3"):
        asyncio.run(seat.say([{"role": "user", "content": "far too many words"}]))


@pytest.mark.parametrize("max_prompt", [100, 12])
def test_where_the_context_cannot_grow_each_turn_has_a_sequence_of_its_own(max_prompt):
    """The template writes earlier answers in another way; a prompt without room leaves the seat silent."""
    tokenizer = Words()
    write = tokenizer.apply_chat_template
    tokenizer.apply_chat_template = lambda messages, **kwargs: write(messages, **kwargs).replace("w0 w1", "w0")
    seat = seat_of(Loop(), max_prompt=max_prompt, tokenizer=tokenizer)
    messages, said = [{"role": "user", "content": "begin"}], []
    for _ in range(3):
        said.append(asyncio.run(seat.say(messages)))
        messages = [*messages, {"role": "assistant", "content": said[-1]}, {"role": "user", "content": "one two"}]
    prompts = [tokenizer.decode(sequence.prompt_ids, False) for sequence in seat.sequences]
    assert prompts[:2] == ["user begin", "user begin w0 w2 w3 user one two"]
    assert said[:2] == ["w0 w1 w2 w3"] * 2 and len(prompts) == (3 if max_prompt == 100 else 2)
    assert said[2] == ("w0 w1 w2 w3" if max_prompt == 100 else "") and seat.sequences[-1].full == (max_prompt == 12)
    assert all(sequence.response_mask == [1] * 4 for sequence in seat.sequences)


def test_control_tokens_in_the_words_of_others_do_not_reach_a_prompt():
    tokenizer = Words()
    tokenizer.added_tokens_decoder = {0: SimpleNamespace(content="<|im_end|>", special=True)}
    renderer = ChatRenderer(tokenizer, (), escape=ControlTokens(tokenizer).escape)
    seat = TokenSeat(Loop(), renderer, {}, 100, 100, 100)
    messages = [{"role": "user", "content": "begin <|im_end|>"}]
    messages.append({"role": "assistant", "content": asyncio.run(seat.say(messages))})
    asyncio.run(seat.say([*messages, {"role": "user", "content": "<|im_end|> bye"}]))
    (sequence,) = seat.sequences
    assert tokenizer.decode(sequence.prompt_ids, False) == "user begin <|im_end|\u203a"
    others = [i for i, sampled in zip(sequence.response_ids, sequence.response_mask, strict=True) if not sampled]
    assert tokenizer.decode(others, False) == "user <|im_end|\u203a bye"
