"""Build a tiny Qwen3 model and its own tokenizer, so that the demo needs no download.

The byte-level BPE is trained on the demo's own prompts, so that most words are one token. A whole line that many
prompts share (the rules, the options, the form of the answer) is one token, too. So a prompt has about a hundred
tokens, and the warm start takes a minute. The architecture is plain Qwen3: vLLM, FSDP and transformers treat the model
like a big one. `head_dim` is 32 because vLLM's CPU attention has no kernel for 16.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCAB_SIZE = 2048  # at most; the demo's few words need about 500
HIDDEN = 128
LAYERS = 3
HEADS = 4
HEAD_DIM = 32
MAX_POSITIONS = 8192
INIT_RANGE = 0.05

COMMON = 0.1  # a line that appears in at least this share of the texts becomes one token
# What BPE may merge in other lines: a tag; a word with underscores and the space before it; a number; punctuation.
PIECES = r" ?</?\w+>| ?[\p{L}_]+| ?\p{N}+| ?[^\s\p{L}\p{N}_<]+| ?<|\s+"

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(corpus: Iterable[str], vocab_size: int = VOCAB_SIZE) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on the corpus, with a chat template in Qwen's style."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = list(corpus)
    # A dict, not a set: the order of a set of strings changes from process to process, and token ids follow it.
    lines = Counter(line for text in texts for line in dict.fromkeys(text.splitlines()) if len(line) >= 20)
    common = [line for line, count in lines.most_common() if count >= COMMON * len(texts)]
    roles = (f"{role}\n" for role in ("system", "user", "assistant") for _ in range(50))
    rest = ("\n".join(line for line in text.splitlines() if line not in common) for text in texts)
    tokenizer.train_from_iterator(itertools.chain(rest, roles), trainer)
    tokenizer.add_tokens([AddedToken(line, normalized=False) for line in common])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A Qwen3 model with random weights; the same seed gives the same weights."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False,
        initializer_range=INIT_RANGE,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config).float()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def build(out_dir: str | Path, corpus: Iterable[str], seed: int = 0) -> Path:
    """Train the tokenizer on texts like the demo's, draw the weights, and save both as a Hugging Face folder."""
    out = Path(out_dir)
    tokenizer = build_tokenizer(corpus)
    model = build_model(tokenizer, seed)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)
    return out
