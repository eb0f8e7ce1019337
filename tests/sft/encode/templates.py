"""Chat templates that behave like those of real models, written for the tests, and a tokenizer to carry them."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from recipe.demo.tiny_model import build_tokenizer
from sft.encode.messages import Turn
from sft.encode.rendering import ChatEncoder, Tools
from sft.encode.sequence import EncodedSequence
from tests.soul.chat.families import CHATML, LLAMA3, SMOLLM

WORDS = [
    "system user assistant You are a helpful model. <think> </think> I was born in spring; and you?",
    "hello there, how do you do? I am fine. \n\nWell then:\n- one\n- two\t three  four",
]

# Thinking stays only in turns after the last question, which get an empty one where they have none, as in Qwen3. It
# reads the first message's role, so it has no rendering of an empty conversation.
STRIPS_THINKING = """{% set ns = namespace(last=messages|length - 1) %}{% if messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'user' %}<|im_start|>user
{{ m.content }}<|im_end|>
{% elif m.role == 'assistant' %}{% set said = m.content.split('</think>')[-1].lstrip('\\n') %}{% set thought = '' %}{% if '</think>' in m.content %}{% set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}{% endif %}<|im_start|>assistant
{% if loop.index0 > ns.last and (loop.last or thought) %}<think>
{{ thought }}
</think>

{% endif %}{{ said }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""  # noqa: E501

# Refuses two questions in a row and an answer first, as in Gemma and Mistral; ends the whole with another token where
# nothing is asked, as in Phi-3.
STRICT = (
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)

# No special token but the end's; the prompt ends in a blank, which melts into the answer's first word.
BLANK = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token if m['role'] == 'assistant' else '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)

# Instruction marks that are plain text and a blank before the answer, as in Llama 2; with a Metaspace tokenizer.
INSTRUCTION = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }}{{ eos_token }}{% else %}"
    "{{ bos_token }}[INST] {{ m['content'] }} [/INST]{% endif %}{% endfor %}"
)

# No special token at all, and turns that melt into each other at both ends.
BARE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

# The tools before everything, calls and results in the turns, as in Hermes.
WITH_TOOLS = """{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] }}{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# A thought and an answer in channels, each with an end of its own, as in gpt-oss.
CHANNELS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)

TEMPLATES = {
    "plain": CHATML,
    "with_tools": WITH_TOOLS,
    "system_default": SMOLLM,
    "strips_thinking": STRIPS_THINKING,
    "with_begin": LLAMA3,
    "strict": STRICT,
    "blank": BLANK,
    "bare": BARE,
    "channels": CHANNELS,
    "instruction": INSTRUCTION,
}
SPECIAL = [
    "<|begin|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|end|>",
    "<|assistant|>",
    "<|user|>",
    *("<|start|>", "<|channel|>", "<|message|>", "<|return|>"),
]


@cache
def tokenizer_with(name: str) -> PreTrainedTokenizerFast:
    """A small byte-level tokenizer that carries one of the templates. BPE is trained so that line breaks merge."""
    if name == "instruction":
        return _metaspace_tokenizer()
    tokenizer = build_tokenizer([*WORDS, *["\n\n", "\n\n\n", " hello", "\n hello"] * 20])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL, "bos_token": "<|begin|>"})
    tokenizer.chat_template = TEMPLATES[name]
    return tokenizer


def _metaspace_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    letters = [f"<0x{number:02X}>" for number in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>", "<s>", "</s>", *letters], show_progress=False
    )
    tokenizer.train_from_iterator([*WORDS, "[INST] [/INST] hello"] * 5, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.chat_template = INSTRUCTION
    return fast


def encode(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Turn], template_kwargs: Mapping[str, Any] | None = None
) -> list[EncodedSequence]:
    """The sequences of one conversation whose assistant turns are trained."""
    trained = [number for number, turn in enumerate(messages) if turn["role"] == "assistant"]
    return encoded(ChatEncoder(tokenizer, template_kwargs), messages, trained)


def encoded(
    encoder: ChatEncoder, messages: Sequence[Turn], trained: Sequence[int], tools: Tools = None
) -> list[EncodedSequence]:
    """The sequences of one conversation."""
    return encoder.sequences([encoder.turns(messages, trained, tools)])[0]
