"""vLLM's server gets the completed template and every end token, and a checkpoint lists them."""

import json
from pathlib import Path

import pytest

from ditto.model.tokenizer_check import check_processor
from ditto.model.weights_check import BadModel
from ditto.run.end_tokens import write_end_tokens
from soul.chat.model_chat import server_arguments, stop_ids
from soul.chat.template_check import BadTemplate
from tests.soul.chat.families import FAMILIES, tokenizer_of


def model(folder, family, ends):
    """A model folder, as far as its conversations go."""
    tokenizer = tokenizer_of(family)
    tokenizer.save_pretrained(folder)
    ids = [tokenizer.convert_tokens_to_ids(word) for word in ends]
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": len(tokenizer)}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids, "top_k": 20}))
    text = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(text | {"eos_token": ends[0]}))
    return tokenizer


def test_a_model_whose_template_does_is_served_as_it_is(tmp_path):
    model(tmp_path, "ChatML (Llama, Yi, InternLM)", ["<|im_end|>"])
    assert server_arguments(str(tmp_path), (), tmp_path / "out") == ((), ())


def test_the_server_gets_the_completed_template_and_every_end_token(tmp_path):
    tokenizer = model(tmp_path, "SmolLM2, Qwen2.5", ["<|endoftext|>"])
    (out := tmp_path / "out").mkdir()
    arguments, notes = server_arguments(str(tmp_path), (), out)
    assert arguments == ("--chat-template", str(out / "chat_template.jinja"), "--generation-config", str(out))
    assert len(notes) == 2 and "helpful assistant named Smol" in notes[0]
    messages = [{"role": "user", "content": "Hi."}]
    template = (out / "chat_template.jinja").read_text()
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert text == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n"
    both = sorted(tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]))
    said = json.loads((out / "generation_config.json").read_text())
    assert said["eos_token_id"] == both and said["top_k"] == 20


def test_a_checkpoint_lists_the_end_of_a_turn(tmp_path):
    tokenizer = model(tmp_path, "a base model with ChatML", ["<|endoftext|>"])
    write_end_tokens(tmp_path)
    both = set(tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]))
    assert stop_ids(str(tmp_path), False, tokenizer) >= both
    assert json.loads((tmp_path / "generation_config.json").read_text())["top_k"] == 20


def test_a_template_that_cannot_be_served_is_refused_before_the_server_starts(tmp_path):
    model(tmp_path, "a template without a generation prompt", ["<|im_end|>"])
    with pytest.raises(BadTemplate, match="no generation prompt"):
        server_arguments(str(tmp_path), (), tmp_path)


def test_a_vision_language_folder_without_its_processor_is_refused(tmp_path):
    model(tmp_path, "ChatML (Llama, Yi, InternLM)", ["<|im_end|>"])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_vl", "vision_config": {}}))
    with pytest.raises(BadModel, match="without its processor"):
        check_processor(str(tmp_path), False, "model.path")
    (tmp_path / "preprocessor_config.json").write_text("{}")
    check_processor(str(tmp_path), False, "model.path")


def test_a_template_that_the_user_names_is_completed_in_place_of_the_models_own(tmp_path):
    tokenizer = model(tmp_path, "a template without a generation prompt", ["<|im_end|>"])
    (tmp_path / "mine.jinja").write_text(FAMILIES["SmolLM2, Qwen2.5"].template)
    arguments, _ = server_arguments(str(tmp_path), ("--chat-template", f"{tmp_path}/mine.jinja"), tmp_path)
    template = Path(arguments[1]).read_text()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi."}], chat_template=template, tokenize=False)
    assert text == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n"
