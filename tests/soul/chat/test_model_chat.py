"""vLLM's server shows a model, a checkpoint or an adapter its conversations as training does, and writes its words."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from ditto.model.model_folder import load_chat
from ditto.run.export import complete_chat_files, export_adapter
from soul.chat.control_tokens import ControlTokens
from soul.chat.model_chat import served_chat, stop_ids
from soul.chat.rendering import ChatRenderer
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
    chat = served_chat(str(tmp_path), None, (), tmp_path / "out")
    assert (chat.arguments, chat.notes) == ((), ())


def test_the_server_gets_the_completed_template_and_every_end_token(tmp_path):
    tokenizer = model(tmp_path, "SmolLM2, Qwen2.5", ["<|endoftext|>"])
    (out := tmp_path / "out").mkdir()
    chat = served_chat(str(tmp_path), None, (), out)
    assert chat.arguments == ("--chat-template", str(out / "chat_template.jinja"), "--generation-config", str(out))
    assert len(chat.notes) == 2 and "helpful assistant named Smol" in chat.notes[0]
    messages = [{"role": "user", "content": "Hi."}]
    template = (out / "chat_template.jinja").read_text()
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert text == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n"
    both = sorted(tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]))
    said = json.loads((out / "generation_config.json").read_text())
    assert said["eos_token_id"] == both and said["top_k"] == 20


def test_a_checkpoint_lists_the_end_of_a_turn(tmp_path):
    tokenizer = model(tmp_path, "a base model with ChatML", ["<|endoftext|>"])
    complete_chat_files(tmp_path)
    both = set(tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]))
    assert stop_ids(str(tmp_path), False, tokenizer) >= both
    assert json.loads((tmp_path / "generation_config.json").read_text())["top_k"] == 20


def test_a_template_that_cannot_be_served_is_refused_before_the_server_starts(tmp_path):
    model(tmp_path, "a template without a generation prompt", ["<|im_end|>"])
    with pytest.raises(BadTemplate, match="no generation prompt"):
        served_chat(str(tmp_path), None, (), tmp_path)


@pytest.mark.parametrize("words", [["--chat-template", "FILE"], ["--chat_template=FILE"]])
def test_a_template_that_the_user_names_is_completed_in_place_of_all_others(tmp_path, words):
    tokenizer = model(tmp_path, "a template without a generation prompt", ["<|im_end|>"])
    (tmp_path / "mine.jinja").write_text(FAMILIES["SmolLM2, Qwen2.5"].template)
    (adapter := tmp_path / "adapter").mkdir()
    (adapter / "chat_template.jinja").write_text("{{ nothing }}")
    given = [word.replace("FILE", f"{tmp_path}/mine.jinja") for word in words]
    template = Path(served_chat(str(tmp_path), adapter, given, tmp_path).arguments[1]).read_text()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi."}], chat_template=template, tokenize=False)
    assert text == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n"


MESSAGES = [{"role": "user", "content": "Any tulips left?"}]


def test_an_adapter_on_its_base_is_served_with_the_template_and_the_arguments_of_its_training(tmp_path):
    base = tmp_path / "base"
    tokenizer = model(base, "Qwen3 without thinking", ["<|im_end|>"])
    kwargs = {"enable_thinking": False}
    trained = load_chat(str(base), False, "model.path", template_kwargs=kwargs)
    step = tmp_path / "global_step_3"
    trained.tokenizer.save_pretrained(step / "actor" / "huggingface")  # as verl does
    factors = {f"model.layers.0.mlp.up_proj.lora_{name}.weight": torch.zeros(2, 2) for name in "AB"}
    export_adapter(step, factors, {"r": 2, "lora_alpha": 4, "task_type": "CAUSAL_LM"}, str(base))
    name, file = served_chat(str(base), step / "lora_adapter", (), tmp_path).arguments
    assert name == "--chat-template"
    expected = ChatRenderer(tokenizer, trained.format.stop_ids, None, kwargs).text(MESSAGES)
    assert ChatRenderer(tokenizer, (), Path(file).read_text()).text(MESSAGES) == expected
    assert expected.endswith("<think>\n\n</think>\n\n")
    assert served_chat(str(base), None, (), tmp_path).arguments == ()


@pytest.mark.parametrize("jinja", [True, False], ids=["chat_template.jinja", "tokenizer_config.json"])
def test_an_adapter_of_others_is_served_with_its_own_template_completed(tmp_path, jinja):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    tokenizer = model(base, "ChatML (Llama, Yi, InternLM)", ["<|im_end|>"])
    tokenizer_of("SmolLM2, Qwen2.5").save_pretrained(adapter, save_jinja_files=jinja)
    assert (adapter / "chat_template.jinja").exists() == jinja
    _, file = served_chat(str(base), adapter, (), tmp_path).arguments
    text = ChatRenderer(tokenizer, (), Path(file).read_text()).text(MESSAGES, ask=False)
    assert text == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nAny tulips left?<|im_end|>\n"


# ---- tags that a tokenizer marks as special


@pytest.fixture
def tagged(real_model, tmp_path):
    """A real model without its weights, to whose tokenizer somebody has added tags as special tokens."""
    folder = tmp_path / "tagged"
    shutil.copytree(real_model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>", "<reply>", "</reply>", "<end>"]})
    tokenizer.save_pretrained(folder)
    return folder


SAID = "<think>Tulips<end>?</think><reply>Only <|im_start|>red ones.</reply><|im_end|>"


@pytest.mark.parametrize("place", ["base", "checkpoint"])
def test_a_server_keeps_the_tags_that_training_keeps_and_drops_what_it_drops(tagged, tmp_path, place):
    trained = AutoTokenizer.from_pretrained(tagged)
    renderer = ChatRenderer(trained, stop_ids(str(tagged), False, trained))
    if place == "base":
        arguments = served_chat(str(tagged), None, (), tmp_path).arguments
        served = AutoTokenizer.from_pretrained(arguments[arguments.index("--tokenizer") + 1])
    else:
        complete_chat_files(tagged)
        served = AutoTokenizer.from_pretrained(tagged)
        assert "--tokenizer" not in served_chat(str(tagged), None, (), tmp_path).arguments
    ids = renderer.ids(SAID)
    said, _ = renderer.decode(ids)
    assert said == "<think>Tulips?</think><reply>Only red ones.</reply>"
    assert served.decode(ids, skip_special_tokens=True) == said != trained.decode(ids, skip_special_tokens=True)
    assert served(SAID, add_special_tokens=False).input_ids == ids
    messages = [{"role": "user", "content": SAID}]
    assert ControlTokens(served).escape(messages) == ControlTokens(trained).escape(messages)
