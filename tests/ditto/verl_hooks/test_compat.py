"""Every patch of compat.py is still needed, and works. A test that fails here says: this patch can go.

Promise under test (design, section 8): one small module holds the patches, with the reason and a test that fails when
one is no longer needed.
"""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

PATCHED_AND_NOT = """
import json, sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

def outcome(work):
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"

def join(name, backend):
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(backend, rank=0, world_size=1, init_method=f"file://{sys.argv[1]}/{name}")
    dist.all_reduce(torch.ones(1))

def offload():
    model = torch.nn.Linear(2, 2)
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=True))
    model(torch.ones(1, 2)).sum().backward()

found = {"backend": [outcome(lambda: join("a", "cpu:gloo,cpu:gloo"))]}
join("b", "gloo")
found["offload"] = [outcome(offload)]
from ditto.verl_hooks.compat import patch_for_cpu
patch_for_cpu()
once = dist.init_process_group, CPUOffloadPolicy.__init__
patch_for_cpu()
found["twice"] = once == (dist.init_process_group, CPUOffloadPolicy.__init__)
found["backend"].append(outcome(lambda: join("c", "cpu:gloo,cpu:gloo")))
found["offload"].append(outcome(offload))
found["default"] = CPUOffloadPolicy().pin_memory
found["other"] = outcome(lambda: join("d", "cpu:nonsense"))
print(json.dumps(found))
"""

SHARED_FACTORS = """
import json
import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu
from ditto.verl_hooks import compat

rows, rank, width = 7, 4, 12
inputs, asked, sizes = torch.randn(rows, width), torch.Tensor.__getitem__, []

def products(module, a, b):
    indices = torch.arange(rows) % len(a)
    shrunk, out, part = torch.zeros(rows, rank), torch.ones(rows, width), torch.ones(rows, 2 * width)
    module.bgmv_shrink(inputs, a, shrunk, indices, 0.5)
    module.bgmv_expand(shrunk, b, out, indices, add_inputs=True)
    module.bgmv_expand_slice(shrunk, b, part, indices, width, width, add_inputs=True)
    return torch.cat([shrunk, out, part], 1)

factors = [(torch.randn(n, 1, rank, width), torch.randn(n, 1, width, rank)) for n in (1, 2)]
before = [products(lora_ops, *each) for each in factors]
compat._share_factors()
compat._share_factors()
def counted(tensor, key):
    if tensor.dim() == 4 and isinstance(key, torch.Tensor):
        sizes.append(len(key))
    return asked(tensor, key)
torch.Tensor.__getitem__ = counted
after = [products(punica_cpu, *each) for each in factors]
torch.Tensor.__getitem__ = asked
difference = max((x - y).abs().max().item() for x, y in zip(before, after))
print(json.dumps({"difference": difference, "indices": sizes, "rows": rows}))
"""


LINEAR, LORA = "model_executor/layers/linear.py", "lora/ops/torch_ops/lora_ops.py"
# Why a patch or a class of ours is needed: package, file, and a pattern of its text, as often as it must be there.
STILL = [
    ("verl", "utils/distributed.py", r'f"cpu:gloo,\{get_device_name\(\)\}:\{get_nccl_backend\(\)\}"', 1),
    ("verl", "workers/engine/fsdp/transformer_impl.py", r"CPUOffloadPolicy\(pin_memory=True\)", 1),
    (
        "vllm",
        "model_executor/layers/utils.py",
        r"if remove_weight:\s+layer\.weight = torch\.nn\.Parameter\(\s*torch\.empty\(0",
        1,
    ),
    ("vllm", LINEAR, r"dispatch_cpu_unquantized_gemm\(layer, remove_weight=True\)", 1),
    # The patch replaces a module's attribute: an import at the top of the caller would keep the original.
    ("vllm", LINEAR, r"\n +from vllm\.model_executor\.layers\.utils import [^\n]*dispatch_cpu_unq", 1),
    ("vllm", LORA, r"lora_b_weights\[lora_indices_tensor\]", 3),
    # verl lets vLLM process its weights after a sync of the whole model.
    (
        "verl",
        "workers/rollout/vllm_rollout/utils.py",
        r"else:\n[^@]*?process_weights_after_loading\(model, model_config",
        1,
    ),
    ("vllm", "model_executor/model_loader/utils.py", r"quant_method\.process_weights_after_loading\(module\)", 1),
    # An adapter's sync asks the mapper by the name of before.
    ("verl", "utils/vllm/utils.py", r"hf_to_vllm_mapper\.get_unstacked_mapper\(\)", 1),
    ("vllm", "model_executor/models/utils.py", r"def get_rename_mapper(?![\s\S]*def get_unstacked_mapper)", 1),
    # Why `plugin.require` is needed, and `DittoTrainerSeparateAsync._setup`.
    ("verl", "__init__.py", r'VERL_USE_EXTERNAL_PLUGINS[\s\S]*\.debug\("Failed to load plugin', 1),
    ("verl", "trainer/ppo/v1/trainer_separate_async.py", r"def _setup[\s\S]*?flush=True", 1),
]


@pytest.mark.parametrize(("package", "path", "pattern", "times"), STILL)
def test_it_is_still_needed(package: str, path: str, pattern: str, times: int) -> None:
    spec = importlib.util.find_spec(package)  # without importing it
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    text = (Path(list(spec.submodule_search_locations)[0]) / path).read_text()
    assert len(re.findall(pattern, text)) >= times


@pytest.fixture(scope="module")
def torch_says(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = str(tmp_path_factory.mktemp("rendezvous"))
    done = subprocess.run([sys.executable, "-c", PATCHED_AND_NOT, folder], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_patched_process_groups_reduce_and_patched_offloading_trains(torch_says: dict[str, Any]) -> None:
    assert "Duplicate device type cpu" in torch_says["backend"][0]
    assert torch.cuda.is_available() or torch_says["offload"][0] != "ok"
    assert torch_says["backend"][1] == torch_says["offload"][1] == "ok"
    assert torch_says["default"] is False and torch_says["twice"] is True
    assert "nonsense" in torch_says["other"].lower()  # other backends are passed on


def test_products_with_an_adapter_are_the_same_without_the_copies() -> None:
    """With one adapter and with two, in a process of its own: the patch changes vLLM's module."""
    done = subprocess.run([sys.executable, "-c", SHARED_FACTORS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["difference"] < 1e-5
    assert found["indices"] == [1] * 3 + [found["rows"]] * 3  # factors that are copied: of one adapter, of every row


def test_the_weights_of_a_tied_model_arrive_in_any_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM refuses the head of a tied model in a piece without the embedding, so the engine does not send it."""
    from transformers import LlamaConfig
    from verl.workers.engine import FSDPEngineWithLMHead
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.model_executor.models.utils import AutoWeightsLoader

    from ditto.model.engine import DittoEngine

    class Table(VocabParallelEmbedding):
        def __init__(self, weight: torch.nn.Parameter) -> None:
            torch.nn.Module.__init__(self)  # vLLM's own wants its process groups
            self.weight = weight

    shared = torch.nn.Parameter(torch.zeros(5, 2))
    served = torch.nn.ModuleDict({"embed": Table(shared), "norm": torch.nn.LayerNorm(2), "lm_head": Table(shared)})
    trained = {
        "embed.weight": torch.ones(5, 2),
        "norm.weight": torch.ones(2),
        "lm_head.weight": torch.ones(5, 2),
    }
    with pytest.raises(ValueError, match="'lm_head.weight' was skipped"):
        AutoWeightsLoader(served).load_weights([("lm_head.weight", trained["lm_head.weight"])])
    monkeypatch.setattr(FSDPEngineWithLMHead, "get_per_tensor_param", lambda self, **_: (iter(trained.items()), None))
    engine = object.__new__(DittoEngine)
    for tied in (False, True):
        engine.model_config = SimpleNamespace(hf_config=LlamaConfig(tie_word_embeddings=tied))
        sent = list(engine.get_per_tensor_param(base_sync_done=True)[0])
        assert [name for name, _ in sent] == list(trained)[: 3 - tied]
    for piece in sent:
        AutoWeightsLoader(served).load_weights([piece])
    assert torch.equal(served["lm_head"].weight, trained["lm_head.weight"])
