"""A checkpoint folder is a model path: LoRA merged, the adapter beside it, in one shard or several.

The folder `actor/huggingface` is made as verl's checkpoint manager makes it: the state dict of the PEFT model, in
PEFT's names, saved by a bfloat16 model of the base's class.
"""

import copy
import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ditto.run.export import export_model, export_saved_adapter
from ditto.run.manifest import rank_file
from tests.ditto.tiny_step import VOCAB, tiny_model

BASE = "owner/model-8b"
IDS = torch.arange(2, 14)[None] % VOCAB


def trained(tmp_path: Path, targets: str | list[str], dtype: torch.dtype, tied: bool) -> tuple[nn.Module, Path]:
    """A PEFT model whose factors are not zero, and the folder of its base."""
    base = tiny_model().to(dtype)
    if tied:
        base.config.tie_word_embeddings = True
        base.tie_weights()
    base.save_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=5, target_modules=targets))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.data = (torch.randn_like(parameter) * 0.3).to(dtype)
    return model.eval(), tmp_path / "base"


def checkpoint(tmp_path: Path, model: nn.Module, shard: str | None = None) -> Path:
    """What verl leaves of a model: `actor/huggingface` and, for LoRA, `actor/lora_train_meta.json`."""
    folder = tmp_path / "global_step_3"
    hf = folder / "actor" / "huggingface"
    hf.mkdir(parents=True)
    state = {key: value.detach().clone() for key, value in model.state_dict().items()}
    config = copy.deepcopy(model.config)
    if config.tie_word_embeddings:  # verl's drop_tied_target_keys
        state = {key: value for key, value in state.items() if "lm_head" not in key}
    config.save_pretrained(hf)
    saver = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    saver.save_pretrained(hf, state_dict=state, **({"max_shard_size": shard} if shard else {}))
    if hasattr(model, "peft_config"):
        meta = {"r": 3, "lora_alpha": 5, "task_type": "CAUSAL_LM"}
        (folder / "actor" / "lora_train_meta.json").write_text(json.dumps(meta))
    (folder / "data.pt").write_bytes(b"dataloader")
    return folder


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits.double()


def load(folder: Path) -> nn.Module:
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return model


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]])
@pytest.mark.parametrize("shard", [None, "15KB"])
def test_merged_model_and_adapter_say_what_the_trained_model_says(
    tmp_path: Path, shard: str | None, targets: str | list[str], tied: bool
) -> None:
    model, base = trained(tmp_path, targets, torch.float32, tied)
    expected = logits(model)
    folder = checkpoint(tmp_path, model, shard)
    shards = list((folder / "actor" / "huggingface").glob("*.safetensors"))
    assert (len(shards) > 1) == (shard is not None)
    assert any(".lora_A.default.weight" in key for path in shards for key in load_file(path))
    assert any("base_model.model." in key and ".base_layer." in key for path in shards for key in load_file(path))

    (folder / "actor" / "huggingface" / "chat_template.jinja").write_text("{{ messages }}")
    export_model(folder, BASE)
    assert (folder / "lora_adapter" / "chat_template.jinja").read_text() == "{{ messages }}"
    # float32 arithmetic in another order: logits of size about 5, round-off 6e-8 each step
    torch.testing.assert_close(logits(load(folder)), expected, rtol=1e-5, atol=1e-5)
    adapter = json.loads((folder / "lora_adapter" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == BASE
    adapted = PeftModel.from_pretrained(load(base), str(folder / "lora_adapter"))
    torch.testing.assert_close(logits(adapted), expected, rtol=1e-5, atol=1e-5)
    assert (logits(load(base)) - expected).abs().max() > 0.1, "the adapter changes something"
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    assert not (folder / "actor" / "huggingface").exists()
    assert (folder / "data.pt").exists()


def test_bfloat16_weights_are_merged_in_float32_and_rounded_once(tmp_path: Path) -> None:
    model, _ = trained(tmp_path, "all-linear", torch.bfloat16, False)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    delta = 5 / 3 * layer.lora_B.default.weight.float() @ layer.lora_A.default.weight.float()
    expected = (layer.base_layer.weight.float() + delta).bfloat16()
    folder = checkpoint(tmp_path, model)
    export_model(folder, BASE)
    merged = load(folder)
    assert merged.dtype == torch.bfloat16
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    torch.testing.assert_close(merged.model.layers[0].mlp.up_proj.weight, expected, rtol=8e-3, atol=1e-6)


@pytest.mark.parametrize("shard", [None, "15KB"])
def test_a_model_without_lora_is_moved_and_its_dtype_told(tmp_path: Path, shard: str | None) -> None:
    model = tiny_model().float()
    expected = logits(model)
    folder = checkpoint(tmp_path, model, shard)
    config = folder / "actor" / "huggingface" / "config.json"
    assert json.loads(config.read_text())["dtype"] == "bfloat16", "verl claims bfloat16: why the dtype is told again"
    export_model(folder, BASE)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    assert not (folder / "lora_adapter").exists()
    torch.testing.assert_close(logits(load(folder)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("named_by", ["config", "text_config"])
@pytest.mark.parametrize("shard", [None, "15KB"])
def test_float32_master_weights_are_stored_in_the_dtype_of_the_base(
    tmp_path: Path, shard: str | None, named_by: str
) -> None:
    model = tiny_model().float()
    folder, base = checkpoint(tmp_path, model, shard), tmp_path / "base"
    tiny_model().bfloat16().save_pretrained(base)
    config = {"config": {"torch_dtype": "bfloat16"}, "text_config": {"text_config": {"dtype": "bfloat16"}}}
    (base / "config.json").write_text(json.dumps(config[named_by]))
    export_model(folder, str(base))
    stored = load(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    for name, weight in model.state_dict().items():
        assert torch.equal(stored.state_dict()[name], weight.bfloat16()), name
    if shard:
        size = json.loads((folder / "model.safetensors.index.json").read_text())["metadata"]["total_size"]
        assert size == 2 * sum(weight.numel() for weight in model.state_dict().values())


def test_a_float32_base_stays_exact_and_its_adapter_too(tmp_path: Path) -> None:
    model, base = trained(tmp_path, "all-linear", torch.float32, False)
    expected = logits(model)
    for name, parameter in model.named_parameters():  # as ditto/model/engine.py keeps a frozen base on a GPU
        if "lora" not in name:
            parameter.data = parameter.data.bfloat16()
    rounded = logits(copy.deepcopy(model).float())
    folder = checkpoint(tmp_path, model)
    export_model(folder, str(base))
    merged = load(folder)
    assert merged.dtype == torch.float32
    torch.testing.assert_close(logits(merged), rounded, rtol=1e-5, atol=1e-5)
    assert (rounded - expected).abs().max() > 1e-4
    adapter = load_file(folder / "lora_adapter" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}


def test_a_checkpoint_of_the_adapter_alone_has_the_same_adapter(tmp_path: Path) -> None:
    model, base = trained(tmp_path, "all-linear", torch.float32, tied=False)
    merged = checkpoint(tmp_path / "merged", model)
    export_model(merged, str(base))
    alone = checkpoint(tmp_path / "alone", model)
    for weights in (alone / "actor" / "huggingface").glob("*.safetensors"):
        weights.unlink()  # verl writes none without hf_model
    factors = {name: value for name, value in model.state_dict().items() if ".lora_" in name}
    torch.save(factors, rank_file(alone / "actor", "model", 1, 0))
    export_saved_adapter(alone, str(base))
    ours, theirs = (load_file(folder / "lora_adapter" / "adapter_model.safetensors") for folder in (alone, merged))
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], value.float(), atol=1e-2) for name, value in theirs.items())
    assert not list(alone.glob("*.safetensors")) and not (alone / "config.json").exists()
