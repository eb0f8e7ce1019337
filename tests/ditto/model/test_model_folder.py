"""A model folder that would end a run late is refused by name: config, vocabulary, hub, chat template."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.model.model_folder import BadModel, Chat, check_vocabulary
from ditto.preflight import check_chat, check_dialogues
from soul import tasks
from soul.chat.template_check import BadTemplate
from tests.ditto.memory.qwen3 import saved, text
from tests.soul.chat.families import CHATML
from tests.soul.chat.test_model_chat import model


def test_a_token_beyond_the_embedding(tmp_path: Path) -> None:
    folder = saved(text("0.6B", num_hidden_layers=1), tmp_path / "model")

    def tokenizer(last: int) -> Any:
        return SimpleNamespace(get_vocab=lambda: {"a": 0, "<extra>": last})

    check_vocabulary(str(folder), False, "model.path", tokenizer(151_935))
    with pytest.raises(BadModel, match=r"up to 151,936 \('<extra>'\), but the embedding has 151,936 rows"):
        check_vocabulary(str(folder), False, "model.path", tokenizer(151_936))


ENDS = ["<|im_end|>"]


def config_of(folder: Path, *words: str) -> DictConfig:
    path = f"actor_rollout_ref.model.path={folder}"
    return load_config(["platform=cpu", "data.train_files=[x]", "data.val_files=[x]", path, *words])


def checked(config: DictConfig, *names: str) -> Chat:
    chat = check_chat(config)
    check_dialogues(config, chat, [tasks.load(name) for name in names])
    return chat


def test_a_file_replaces_the_template_by_its_text(tmp_path: Path) -> None:
    model(tmp_path, "Phi 4", ENDS)
    (tmp_path / "mine.jinja").write_text("{# mine #}" + CHATML)
    config = config_of(tmp_path, f"actor_rollout_ref.model.custom_chat_template={tmp_path}/mine.jinja")
    chat = checked(config, "sotopia")
    assert config.actor_rollout_ref.model.custom_chat_template == "{# mine #}" + CHATML
    assert "<|im_start|>user\n" in chat.tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
    with pytest.raises(BadModel, match=r"custom_chat_template=gone\.jinja: neither a file"):
        check_chat(config_of(tmp_path, "actor_rollout_ref.model.custom_chat_template=gone.jinja"))


def test_a_template_that_moves_the_instructions_is_refused_for_dialogues_alone(tmp_path: Path) -> None:
    model(tmp_path, "Mistral v0.3", ENDS)
    checked(config_of(tmp_path), "hitom")
    with pytest.raises(BadTemplate, match=r"(?s)moves or changes.*As served: .*\[INST\].*As trained: .*sotopia cannot"):
        checked(config_of(tmp_path), "hitom", "sotopia")
