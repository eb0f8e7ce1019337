"""Small chat templates with the structure of well-known families', and a tokenizer that carries them."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerFast

from recipe.demo.tiny_model import build_tokenizer


@dataclass(frozen=True)
class Family:
    """A family's template, its end tokens, and what `fit_template` should find.

    Attributes:
        stops: the end tokens of its generation_config.
        notes: a word of each note; nothing else is noted.
        refused: a word of the error; None if the model is accepted.
        dialogue_problem: a word of `ChatFormat.dialogue_problem`.
        special: its special tokens.
    """

    template: str
    stops: tuple[str, ...]
    notes: tuple[str, ...] = ()
    refused: str | None = None
    dialogue_problem: str | None = None
    special: tuple[str, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SMOLLM = (
    """{% if messages[0].role != 'system' %}<|im_start|>system
You are a helpful assistant named Smol<|im_end|>
{% endif %}"""
    + CHATML
)
QWEN3 = """{% set ns = namespace(last=messages|length - 1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>

</think>

{% endif %}{{ m.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""  # noqa: E501
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content|trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
ALTERNATE = (
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
)
GEMMA2 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}" + ALTERNATE + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content|trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
GEMMA3 = (
    "{{ bos_token }}{% set first = '' %}{% if messages[0].role == 'system' %}"
    "{% set first = messages[0].content ~ '\n\n' %}{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}" + ALTERNATE + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ first if loop.first else '' }}{{ m.content|trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL1 = (
    "{{ bos_token }}{% for m in messages %}" + ALTERNATE + "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}{% endfor %}"
)
MISTRAL3 = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
    "{% endif %}{{ bos_token }}{% for m in messages %}" + ALTERNATE + "{% if m.role == 'user' %}"
    "[INST]{% if loop.revindex0 < 1 and system is defined %}{{ system }}\n\n{% endif %}{{ m.content }}[/INST]"
    "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
PHI3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
PHI4 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}"
)
GLM4 = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
R1_DISTILL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}"
    "<|User|>{{ m.content }}{% else %}<|Assistant|>{{ m.content.split('</think>')[-1] }}<|end_of_sentence|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
NEEDS_USER = (
    "{% if not messages|selectattr('role', 'equalto', 'user')|list %}{{ raise_exception('No user query') }}{% endif %}"
)
HIDES = "<|im_start|>user\nHello<|im_end|>\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
NO_PROMPT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
BARE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ 'assistant:' if add_generation_prompt }}"

GEMMA_WORDS = ("<start_of_turn>", "<end_of_turn>")
ROLE_WORDS = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "[gMASK]", "<sop>")
SYSTEM_FOLDED, MERGED, ALONE = "takes no system", "in a row", "needs a user message first"
OWN_TURNS = "a sequence of its own"

FAMILIES = {
    "ChatML (Llama, Yi, InternLM)": Family(CHATML, ("<|im_end|>",)),
    "SmolLM2, Qwen2.5": Family(SMOLLM, ("<|im_end|>",), ("replaced by an empty one",)),
    "a base model with ChatML": Family(CHATML, ("<|endoftext|>",), ("answers end at",)),
    "Qwen3": Family(QWEN3, ("<|im_end|>",), special=("<think>", "</think>")),
    "Qwen3 without thinking": Family(QWEN3, ("<|im_end|>",), (OWN_TURNS,), kwargs={"enable_thinking": False}),
    "Qwen3.5": Family(NEEDS_USER + CHATML, ("<|im_end|>",), (ALONE,)),
    "Llama 3": Family(LLAMA3, ("<|eot_id|>",), special=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "Gemma 2": Family(GEMMA2, ("<end_of_turn>",), (SYSTEM_FOLDED,), special=GEMMA_WORDS),
    "Gemma 3": Family(GEMMA3, ("<end_of_turn>",), (MERGED, ALONE), special=GEMMA_WORDS),
    "Mistral v0.1": Family(MISTRAL1, ("<|im_end|>",), (SYSTEM_FOLDED,), special=("[INST]", "[/INST]")),
    "Mistral v0.3": Family(
        MISTRAL3,
        ("<|im_end|>",),
        (MERGED, ALONE),
        dialogue_problem="moves or changes",
        special=("[INST]", "[/INST]"),
    ),
    "Phi 3": Family(PHI3, ("<|end|>",), special=ROLE_WORDS),
    "Phi 4": Family(PHI4, ("<|im_end|>",), special=("<|im_sep|>",)),
    "GLM 4": Family(GLM4, ("<|endoftext|>", "<|user|>"), ("closes no turn",), special=ROLE_WORDS),
    "GLM 4 without its end tokens": Family(GLM4, ("<|endoftext|>",), refused="never closes", special=ROLE_WORDS),
    "R1 distillations": Family(
        R1_DISTILL,
        ("<|end_of_sentence|>",),
        (OWN_TURNS,),
        special=("<|User|>", "<|Assistant|>", "<|end_of_sentence|>"),
    ),
    "a template that shows nothing": Family(HIDES, ("<|im_end|>",), refused="is missing"),
    "a template without a generation prompt": Family(NO_PROMPT, ("<|im_end|>",), refused="no generation prompt"),
    "a template without end tokens": Family(BARE, ("<|im_end|>",), refused="never closes"),
    "a path instead of a template": Family("chatml.jinja", ("<|im_end|>",), refused="single user message"),
}


@cache
def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    """A small byte-level tokenizer with a family's template and special tokens."""
    family = FAMILIES[name]
    tokenizer = build_tokenizer(["Good morning. Hello there. Any tulips left? Only red ones. user assistant model"] * 9)
    tokenizer.add_special_tokens(
        {"additional_special_tokens": list(family.special), "bos_token": "<|begin|>", "eos_token": "<|im_end|>"}
    )
    tokenizer.chat_template = family.template
    return tokenizer


def stop_ids(name: str) -> set[int]:
    """The ids of a family's end tokens."""
    return {int(tokenizer_of(name).convert_tokens_to_ids(word)) for word in FAMILIES[name].stops}
