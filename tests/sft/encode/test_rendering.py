"""What is trained is what the model would write, after exactly what it would be given."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from recipe.demo.tiny_model import build_tokenizer
from sft.encode.rendering import ChatEncoder, TemplateFailure
from sft.encode.sequence import EncodedSequence
from soul.chat.template_check import BadTemplate
from soul.chat.template_file import read_template
from tests.sft.encode.templates import STRIPS_THINKING, TEMPLATES, WORDS, encode, encoded, tokenizer_with
from tests.soul.chat.families import tokenizer_of

Turns = list[dict[str, Any]]


def say(*texts: str, first: str = "user") -> Turns:
    """Turns of user and assistant by turns."""
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


def prompt_of(name: str, turns: Turns, **kwargs: Any) -> list[int]:
    """What transformers itself gives the model to answer these turns."""
    return tokenizer_with(name).apply_chat_template(turns, add_generation_prompt=True, return_dict=False, **kwargs)


def check_exact(name: str, turns: Turns, sequences: list[EncodedSequence], **kwargs: Any) -> None:
    """Every assistant turn that has something before it: trained once, after exactly its prompt."""
    found = [(s.ids[:start], s.ids[start:stop]) for s in sequences for start, stop in s.spans]
    for number, turn in enumerate(turns):
        if turn["role"] != "assistant" or number == 0:
            continue
        prompt = prompt_of(name, turns[:number], **kwargs)
        answers = [answer for before, answer in found if before == prompt]
        assert len(answers) == 1, f"turn {number}"
        tokenizer = tokenizer_with(name)
        whole = tokenizer.apply_chat_template(turns[: number + 1], tokenize=False, **kwargs)
        text = tokenizer.decode(answers[0])
        said = whole[
            len(tokenizer.apply_chat_template(turns[:number], tokenize=False, add_generation_prompt=True, **kwargs)) :
        ]
        assert said.startswith(text)
        assert said[len(text) :].strip() in ("", tokenizer.eos_token)
    for sequence in sequences:
        edges = [edge for span in sequence.spans for edge in span]
        assert edges == sorted(edges) and edges[0] >= 1 and edges[-1] == len(sequence.ids)


CONVERSATIONS = {
    "one": say("hello there", "I am fine."),
    "three": say("hello", "I am fine.", "and you?", "I was born in spring;", "how?", "one two"),
    "thinking": say(
        "hello", "<think>\nhow do you do\n</think>\n\nfine", "and?", "<think>\nWell\n</think>\n\nthen", "you?", "I"
    ),
    "breaks": say("hello", "\n\none", "two", "\nthree", "four", " hello"),
    "unicode": say("grüß dich 🌱", "naïve – 你好 🌱🌱", "é", "e\u0301 and ﬁ"),
    "quotes_the_end": say("how does it end?", "end|> or assistant", "and?", "<|im_end|> is the end"),
}


@pytest.mark.parametrize("turns", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_trained_turn_follows_its_own_prompt(name: str, turns: Turns) -> None:
    check_exact(name, turns, encode(tokenizer_with(name), turns))


@pytest.mark.parametrize("name", ["plain", "strips_thinking", "with_begin", "system_default"])
def test_with_a_system_message_and_several_speakers_in_a_row(name: str) -> None:
    turns = [{"role": "system", "content": "You are a model."}, *say("hello", "one", "two", first="assistant")]
    turns += say("three", "four", "five") + say("hello", "I", first="assistant")
    check_exact(name, turns, encode(tokenizer_with(name), turns))


PIECES = [*"abI \n\t-.:;é你", "hello", " one", "\n\n", "<think>", "</think>"]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)
visible = texts.filter(lambda text: text.strip() != "")


@pytest.mark.parametrize("name", TEMPLATES)
@given(st.lists(st.tuples(texts, visible), min_size=1, max_size=4))
def test_any_text(name: str, pairs: list[tuple[str, str]]) -> None:
    turns = say(*(text for pair in pairs for text in pair))
    check_exact(name, turns, encode(tokenizer_with(name), turns))


@pytest.mark.parametrize("name", ["plain", "system_default", "with_begin"])
def test_a_plain_template_gives_one_sequence(name: str) -> None:
    turns = CONVERSATIONS["three"]
    (sequence,) = encode(tokenizer_with(name), turns)
    assert len(sequence.spans) == 3
    whole = tokenizer_with(name).apply_chat_template(turns, return_dict=False)
    assert whole[: len(sequence.ids)] == sequence.ids
    assert tokenizer_with(name).decode(whole[len(sequence.ids) :]).strip() == ""


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_conversations_that_are_tokenised_together_give_what_each_gives_alone(name: str) -> None:
    encoder = ChatEncoder(tokenizer_with(name))
    conversations = [[turn for turn in turns if turn["role"] != "system"] for turns in CONVERSATIONS.values()]
    rendered, alone = [], []
    for turns in conversations:
        trained = [number for number, turn in enumerate(turns) if turn["role"] == "assistant"]
        try:
            alone.append(encoded(encoder, turns, trained))
        except TemplateFailure:
            continue
        rendered.append(encoder.turns(turns, trained))
    assert rendered and encoder.sequences([[], *rendered]) == [[], *alone]


def test_where_thinking_is_stripped_every_answer_is_a_sequence_of_its_own() -> None:
    turns = CONVERSATIONS["thinking"]
    sequences = encode(tokenizer_with("strips_thinking"), turns)
    texts = [tokenizer_with("strips_thinking").decode(sequence.ids) for sequence in sequences]
    assert [text.count("<think>") for text in texts] == [1, 1, 1]  # its own alone
    assert ["do you do" in text for text in texts] == [True, False, False]
    assert [len(sequence.spans) for sequence in sequences] == [1, 1, 1]


def test_answers_in_a_row_after_the_last_question_share_a_sequence() -> None:
    turns = say("hello", "<think>\na\n</think>\n\none") + [
        {"role": "assistant", "content": "<think>\nb\n</think>\n\ntwo"}
    ]
    (sequence,) = encode(tokenizer_with("strips_thinking"), turns)
    assert len(sequence.spans) == 2


def test_template_arguments_reach_the_prompt() -> None:
    turns, kwargs = CONVERSATIONS["three"], {"enable_thinking": False}
    sequences = encode(tokenizer_with("strips_thinking"), turns, kwargs)
    check_exact("strips_thinking", turns, sequences, **kwargs)
    answer = sequences[-1].ids[slice(*sequences[-1].spans[0])]
    assert tokenizer_with("strips_thinking").decode(answer) == "one two<|im_end|>"  # the empty thought is in the prompt


def test_an_opening_is_trained_after_what_the_template_puts_before_it() -> None:
    turns = say("hello there", "and you?", "fine", first="assistant")
    for name, before in {
        "plain": "<|im_start|>assistant\n",
        "system_default": (
            "<|im_start|>system\nYou are a helpful assistant named Smol<|im_end|>\n<|im_start|>assistant\n"
        ),
        "with_begin": "<|begin|><|start_header_id|>assistant<|end_header_id|>\n\n",
    }.items():
        tokenizer = tokenizer_with(name)
        (sequence,) = encode(tokenizer, turns)
        start, stop = sequence.spans[0]
        assert tokenizer.decode(sequence.ids[:start]) == before
        assert tokenizer.decode(sequence.ids[start : stop - 1]) == "hello there"
        assert len(sequence.spans) == 2


def test_an_opening_that_cannot_be_prompted_is_context_alone() -> None:
    turns = say("hello there", "and you?", "fine", first="assistant")
    sequences = encoded(ChatEncoder(tokenizer_with("strips_thinking"), {"enable_thinking": False}), turns, [0, 2])
    assert [len(sequence.spans) for sequence in sequences] == [1]
    check_exact("strips_thinking", turns, sequences, enable_thinking=False)


def test_only_the_turns_that_are_asked_for_are_trained() -> None:
    turns = CONVERSATIONS["three"]
    (sequence,) = encoded(ChatEncoder(tokenizer_with("plain")), turns, [3])
    assert sequence.ids[: sequence.spans[0][0]] == prompt_of("plain", turns[:3])
    assert sequence.trained == len(sequence.ids) - sequence.spans[0][0]


def test_a_turn_that_melts_into_its_prompt_gets_its_own_sequence() -> None:
    turns = CONVERSATIONS["breaks"]
    tokenizer = tokenizer_with("plain")
    whole = tokenizer.apply_chat_template(turns, return_dict=False)
    prompt = prompt_of("plain", turns[:1])
    assert whole[: len(prompt)] != prompt  # else this text shows nothing
    assert len(encode(tokenizer, turns)) > 1


@pytest.mark.parametrize(
    ("name", "end"),
    [("plain", "<|im_end|>"), ("with_begin", "<|eot_id|>"), ("strict", "<|end|>"), ("blank", "<|im_end|>")],
)
def test_a_turn_ends_with_its_end_token(name: str, end: str) -> None:
    """Not with the line break behind it, nor with what the template writes after a whole conversation."""
    for turns in (CONVERSATIONS["one"], CONVERSATIONS["three"]):
        last = encode(tokenizer_with(name), turns)[-1]
        assert tokenizer_with(name).decode(last.ids[slice(*last.spans[-1])]) == turns[-1]["content"] + end


@pytest.mark.parametrize("thought", ["the second one fits", "A or B? I think B", "not A, so <|end|> it is B"])
def test_an_answer_that_the_thought_says_too_is_trained_to_its_end(thought: str) -> None:
    tokenizer = tokenizer_with("channels")
    turns = [{"role": "user", "content": "A or B?"}, {"role": "assistant", "content": "B", "thinking": thought}]
    (sequence,) = encode(tokenizer, turns)
    trained = tokenizer.decode(sequence.ids[slice(*sequence.spans[0])])
    assert trained == (
        f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>"
    )


def test_a_word_of_the_end_token_is_not_taken_for_the_answer() -> None:
    (sequence,) = encode(tokenizer_with("plain"), say("how does it end?", "end"))
    assert tokenizer_with("plain").decode(sequence.ids[slice(*sequence.spans[0])]) == "end<|im_end|>"


def test_a_prompt_that_reads_otherwise_with_its_answer_is_tokenised_by_itself() -> None:
    """A boundary at the right place is not enough: here "::" is one token before an x, and two elsewhere."""
    vocabulary = {word: number for number, word in enumerate(["?", "::", *":abxy", "<e>"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("::(?=x)|."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '::' if m.role == 'assistant' else '' }}{{ m.content }}<e>{% endfor %}"
        "{{ '::' if add_generation_prompt else '' }}"
    )
    sequences = encode(tokenizer, say("a", "xy", "b", "yx"))
    apart = [tokenizer.convert_ids_to_tokens(sequence.ids) for sequence in sequences]
    assert apart == [
        ["a", "<e>", ":", ":", "x", "y", "<e>"],
        ["a", "<e>", "::", *"xy", "<e>", "b", "<e>", *"::yx", "<e>"],
    ]
    assert [sequence.spans for sequence in sequences] == [[(4, 7)], [(10, 13)]]
    (together,) = encode(tokenizer, say("a", "yx", "b", "yx"))
    assert together.spans == [(4, 7), (11, 14)]


def test_the_qwen3_variant_keeps_a_row_without_thoughts_whole() -> None:
    """Twenty answers cost ten times their tokens with a template that strips thoughts, and once with the variant."""
    tokenizer = build_tokenizer(WORDS)
    with pytest.raises(BadTemplate, match="another family of models: .*</think>, <think>"):
        read_template("qwen3", "model.chat_template", tokenizer.get_vocab())
    tokenizer.add_tokens(["<think>", "</think>"])
    turns = say(*["hello there, how do you do?", "I am fine. Well then:"] * 20)

    def tokens(template_kwargs: dict[str, Any]) -> tuple[int, int]:
        sequences = encode(tokenizer, turns, template_kwargs)
        return len(sequences), sum(len(sequence.ids) for sequence in sequences)

    tokenizer.chat_template = STRIPS_THINKING
    assert tokens({})[0] == 20
    stripped = tokens({})[1]
    tokenizer.chat_template = read_template("qwen3", "model.chat_template", tokenizer.get_vocab())
    for kwargs in ({}, {"enable_thinking": False}):
        assert tokens(kwargs)[0] == 1 and stripped > 8 * tokens(kwargs)[1]
        (sequence,) = encode(tokenizer, turns, kwargs)
        for number, (start, stop) in zip(range(1, 40, 2), sequence.spans, strict=True):
            prompt = tokenizer.apply_chat_template(
                turns[:number], add_generation_prompt=True, return_dict=False, **kwargs
            )
            assert sequence.ids[:start] == prompt
            thought = "" if kwargs else "<think>\n\n</think>\n\n"
            assert tokenizer.decode(sequence.ids[start:stop]) == f"{thought}{turns[number]['content']}<|im_end|>"


def test_the_qwen3_variant_strips_earlier_thoughts_as_qwen3_does() -> None:
    tokenizer = build_tokenizer(WORDS)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = read_template("qwen3", "model.chat_template", tokenizer.get_vocab())
    turns = say("hello", "<think>\nhow\n</think>\n\nfine", "and?", "<think>\nWell\n</think>\n\nthen")
    first, second = (tokenizer.decode(sequence.ids) for sequence in encode(tokenizer, turns))
    assert first.endswith("<think>\nhow\n</think>\n\nfine<|im_end|>")
    assert "how" not in second and second.endswith("<think>\nWell\n</think>\n\nthen<|im_end|>")
    same = say("hello", "fine", "hello", "fine")  # turns that say the same are still turns of their own
    assert len(encode(tokenizer, same)) == 1


@pytest.mark.parametrize("template", ["with_tools", "qwen3"])
def test_calls_of_tools_are_trained_and_their_results_are_context(template: str) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "pear"}}}
    turns = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "One moment.", "tool_calls": [call]},
        {"role": "tool", "content": "In the box."},
        {"role": "assistant", "content": "In the box."},
    ]
    tokenizer = build_tokenizer(WORDS)
    tokenizer.add_tokens(
        ["<think>", "</think>", "<tool_call>", "</tool_call>", "<call>", "</call>"], special_tokens=True
    )
    if template == "qwen3":
        tokenizer.chat_template = read_template(template, "model.chat_template", tokenizer.get_vocab())
    else:
        tokenizer.chat_template = TEMPLATES[template]
    (sequence,) = encoded(ChatEncoder(tokenizer), turns, [1, 3], [tool])
    said = [tokenizer.decode(sequence.ids[start:stop]) for start, stop in sequence.spans]
    assert "One moment." in said[0] and '"pear"' in said[0] and said[0].endswith("<|im_end|>")
    assert said[1].endswith("In the box.<|im_end|>") and "look" in tokenizer.decode(
        sequence.ids[: sequence.spans[0][0]]
    )


def test_a_field_that_the_template_does_not_render_is_refused() -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "because"}]
    with pytest.raises(TemplateFailure, match="turn 1 .assistant., field reasoning_content: .* does not render it"):
        encode(tokenizer_with("plain"), turns)


def test_an_unclosed_turn_is_trained_with_the_token_of_the_next_role_that_ends_it() -> None:
    tokenizer = tokenizer_of("GLM 4")
    turns = say("hello", "fine", "and?", "good")
    (sequence,) = encode(tokenizer, turns)
    assert [tokenizer.decode(sequence.ids[start:stop]) for start, stop in sequence.spans] == [
        "fine<|user|>",
        "good<|user|>",
    ]
    prompt = tokenizer.apply_chat_template(turns[:3], add_generation_prompt=True, return_dict=False)
    assert sequence.ids[: len(prompt)] == prompt
