"""Plain text is trained whole: every token once, documents apart."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from ditto.model.attention import packing_of
from sft.corpus import tokenize as tokenising
from sft.corpus.split import open_corpus
from sft.formats import reading
from tests.sft.corpus.corpora import opened, settings, write
from tests.sft.encode.templates import tokenizer_with

END = "<|endoftext|>"  # not the end of a turn, which is this tokenizer's `eos_token`
END_ID = tokenizer_with("plain").convert_tokens_to_ids(END)
LENGTH: dict[str, Any] = {"max_prompt_length": 40, "max_response_length": 24}


def documents(count: int = 60) -> list[str]:
    """Documents of one word up to several sequences."""
    rng = random.Random(1)
    words = "hello there, how do you do? I am fine.\n\n Well then:\n- one\t three  four".split(" ")
    return [" ".join(rng.choices(words, k=rng.choice([1, 3, 10, 30, 200]))) or "x" for _ in range(count)]


def trained_of(corpus: Any) -> tuple[list[tuple[int, ...]], int]:
    """The documents of a corpus as the model gets them: ids from border to border, and how many tokens are trained."""
    parts: list[tuple[int, ...]] = []
    trained = 0
    for number in range(len(corpus.dataset)):
        item = corpus.dataset[number]
        assert len(item["input_ids"]) <= 64
        lengths = packing_of(item["position_ids"][None]).lengths
        for ids, mask in zip(item["input_ids"].split(lengths), item["loss_mask"].split(lengths), strict=True):
            assert mask.tolist() == [0] + [1] * (len(ids) - 1)  # each token but the first follows one of its document
            parts.append(tuple(ids.tolist()))
            trained += int(mask.sum())
    return parts, trained


@pytest.mark.parametrize("unit_rows", [7, 2048])
def test_every_token_of_a_document_is_trained_once(
    tmp_path: Path, unit_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenising, "UNIT_ROWS", unit_rows)
    monkeypatch.setattr(reading, "BATCH_ROWS", unit_rows)
    texts = documents()
    rows = [{"text": text, "data_source": f"books/{number % 2} of all"} for number, text in enumerate([*texts, " "])]
    file = write(tmp_path / "train_shard_0.parquet", rows)
    corpus = opened(tmp_path, train_files=[str(file)], **LENGTH)
    tokenizer = tokenizer_with("plain")
    whole = [(*tokenizer(text).input_ids, END_ID) for text in texts]
    parts, trained = trained_of(corpus)
    assert trained == sum(len(ids) - 1 for ids in whole)
    short = [ids for ids in whole if len(ids) <= 64]
    assert sorted(part for part in parts if part in set(short)) == sorted(short)
    for ids in whole:  # a long one is cut, and each part repeats the last token of the one before
        pieces = [ids[start : start + 64] for start in range(0, max(1, len(ids) - 1), 63)]
        assert all(piece in parts for piece in pieces)
    counts = corpus.sources["books/0 of all"]
    assert (counts.roles, counts.rows, counts.left_out) == ({"document": 31}, 31, {"empty_documents": 1})
    if unit_rows == 2048:
        full = sum(count.tokens for count in corpus.sources.values()) / (64 * len(corpus.dataset))
        assert full > 0.8


def test_the_end_may_be_the_token_of_unknown_words(tmp_path: Path) -> None:
    """As in SmolLM2 and GPT-2."""
    file = write(tmp_path / "a.parquet", [{"text": "hello there"}])
    tokenizer = copy.deepcopy(tokenizer_with("plain"))
    tokenizer.unk_token = END
    corpus = open_corpus(settings(tmp_path, train_files=[str(file)]), tokenizer, "train")
    assert corpus is not None and corpus.dataset[0]["input_ids"].tolist()[-1] == END_ID


def test_a_pack_is_recorded_under_the_row_of_its_first_document(tmp_path: Path) -> None:
    texts = ["hello " * 40, "fine " * 40, "there", "hello " * 100]  # the third has room beside the first or second
    file = write(tmp_path / "a.parquet", [{"text": text} for text in texts])
    corpus = opened(tmp_path, train_files=[str(file)], **LENGTH)
    tokenizer = tokenizer_with("plain")
    rows = corpus.dataset.column("row").tolist()
    for number, first in enumerate(rows):
        text = tokenizer.decode(corpus.dataset[number]["input_ids"])
        assert texts[first].split()[0] in text.split()[0], (first, text)
    assert set(rows) == {0, 1, 3}


def test_documents_of_a_pack_do_not_see_each_other(tmp_path: Path) -> None:
    """The model's own log-probs of a packed document are those that the document has alone."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    import ditto.model.attention  # noqa: F401 (registers the attention)

    rows = [{"text": text} for text in ("hello there, how do you do?", "I am fine. Well then", "two three  four")]
    corpus = opened(tmp_path, train_files=[str(write(tmp_path / "a.parquet", rows))], **LENGTH)
    item = corpus.dataset[0]
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer_with("plain")), num_key_value_heads=2, **shape)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="packed").eval()
    with torch.no_grad():
        packed = model(item["input_ids"][None], position_ids=item["position_ids"][None], use_cache=False).logits[0]
        lengths = packing_of(item["position_ids"][None]).lengths
        assert len(lengths) == 3
        for ids, logits in zip(item["input_ids"].split(lengths), packed.split(lengths), strict=True):
            alone = model(ids[None], position_ids=torch.arange(len(ids))[None], use_cache=False).logits[0]
            torch.testing.assert_close(logits, alone)
