"""Try one attention layer of the configured kind on the configured device, before an engine starts.

Otherwise a kernel that is missing, or that does not support the model's heads or the GPU, would fail minutes later in
every worker. The layer has the model's heads and is tiny otherwise; nothing is downloaded. On a GPU it runs in a
separate process: the driver lives as long as the run and must not occupy GPU memory.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import torch
from omegaconf import DictConfig, OmegaConf

from ditto.model.attention import KERNEL_DTYPES
from ditto.model.prefix_tree.attention import Branches
from ditto.model.prefix_tree.tree import Node
from ditto.settings import BadConfig
from soul.errors import one_line

logger = logging.getLogger(__name__)

# verl replaces the attention of these models by its own, which always calls flash-attn, regardless of the config.
CALL_FLASH_ATTN = ("qwen2_vl", "qwen2_5_vl", "glm4v", "kimi_vl")
PACKAGES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
DTYPES = {"fp32": torch.float32, "float32": torch.float32, "fp16": torch.float16, "float16": torch.float16}
TREE_TOLERANCE = 0.1  # of outputs and gradients, relative; bfloat16 keeps 8 bits
LENGTHS = (3, 5)  # tokens of the two sequences of the pack


@dataclass(frozen=True)
class Layer:
    """The attention layer to try: with the heads of the model, and tiny otherwise."""

    model_type: str
    attention: str
    modules: tuple[str, ...]  # imported first: they register attention implementations with transformers
    device: str
    dtype: torch.dtype
    packed: bool  # True: several sequences in one row; False: padded rows
    heads: int
    kv_heads: int
    head_dim: int
    tree: bool = False  # rows are computed as trees too (algorithm.prefix_tree)

    @classmethod
    def from_config(cls, model: DictConfig, name: str, device: str, dtype: str | None, *, trees: bool) -> Layer:
        """The layer of a model section; `dtype` is the parameters' one in the computation."""
        from transformers import AutoConfig

        trust, packed = bool(model.get("trust_remote_code", False)), bool(model.use_remove_padding)
        whole = AutoConfig.from_pretrained(model.path, trust_remote_code=trust, local_files_only=True)
        text, modules = whole.get_text_config(), model.get("external_lib") or []
        heads = getattr(text, "num_attention_heads", None) or 4
        return cls(
            model_type=whole.model_type,
            attention=name,
            modules=(modules,) if isinstance(modules, str) else tuple(modules),
            device=device,
            dtype=DTYPES.get(str(dtype), torch.bfloat16),
            packed=packed,
            heads=heads,
            kv_heads=getattr(text, "num_key_value_heads", None) or heads,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
            tree=trees and packed and name == "packed",
        )


def check_attention(config: DictConfig) -> None:
    """Run one layer forward and backward.

    Args:
        config: the config of RL (`actor_rollout_ref.model`) or of supervised training (`model`).

    Raises:
        BadConfig: the layer does not run; the message says what is missing and which override works.
    """
    rl = "actor_rollout_ref" in config
    section, engine = ("actor_rollout_ref.model", "actor_rollout_ref.actor.fsdp_config") if rl else ("model", "engine")
    key, model = f"{section}.override_config.attn_implementation", OmegaConf.select(config, section)
    name = (model.get("override_config") or {}).get("attn_implementation", "flash_attention_2")  # verl's default
    dtype = (OmegaConf.select(config, engine).get("mixed_precision") or {}).get("param_dtype")
    trees = rl and config.algorithm.prefix_tree != "off"
    layer = Layer.from_config(model, name, config.trainer.device, dtype, trees=trees)
    _check_names(layer, section, key)
    if "/" in name or (name in PACKAGES and not _installed(PACKAGES[name])):
        logger.warning("Skipped the attention check: transformers downloads the kernel %s from the hub", name)
    elif layer.device == "cuda" and not torch.cuda.device_count():  # device_count() occupies no GPU memory
        _skip_without_gpu(config)
    elif reason := _failure(layer):
        raise BadConfig(
            f"{key}={name} does not run on trainer.device={layer.device} here ({reason}). {_remedy(key, name)}"
        )


def _check_names(layer: Layer, section: str, key: str) -> None:
    """Check everything that needs no device."""
    from transformers import AttentionInterface

    for module in layer.modules:
        if module == "ditto.model.install":  # it also imports verl's engines, which takes seconds
            module = "ditto.model.attention"
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise BadConfig(
                f"{section}.external_lib={module} cannot be imported: {error}. Correct the name, or install the module."
            ) from error
    name = layer.attention
    package = PACKAGES.get(name)
    if package and not _installed(package) and not _installed("kernels"):
        raise BadConfig(f"{key}={name}, but the package {package} is not installed. {_remedy(key, name)}")
    known = [*AttentionInterface().valid_keys(), "eager"]
    if name not in known and "/" not in name:  # a name with a slash is a kernel on the hub
        imported = ", ".join(layer.modules) or "null"
        raise BadConfig(
            f"{key}={name} is not known to transformers. Use one of {', '.join(known)}. packed is registered by "
            f"ditto.model.install, which {section}.external_lib must name (it is {imported})."
        )
    if layer.packed and layer.model_type in CALL_FLASH_ATTN and not _installed("flash_attn"):
        raise BadConfig(
            f"{section}.path: verl replaces the attention of a {layer.model_type} by its own, which always calls "
            f"flash-attn regardless of {key}, and flash-attn is not installed. Install it, or use a Qwen3 or Qwen3-VL "
            "model."
        )


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _remedy(key: str, name: str) -> str:
    if name == "packed":
        return f"Set {key}=sdpa, which runs everywhere, but whose cost grows with the square of a pack's length."
    return (
        f"Set {key}=packed, which needs no further package: torch's variable-length flash kernel on a GPU, sdpa on a "
        "CPU."
    )


def _skip_without_gpu(config: DictConfig) -> None:
    """Handle a machine without a GPU: an error, except for a dry run or the driver of a cluster."""
    address = os.environ.get("RAY_ADDRESS") or OmegaConf.select(config, "ray_kwargs.ray_init.address")
    if not (config.get("dry_run") or address or os.environ.get("VERL_PLATFORM", "").lower() == "cuda"):
        raise BadConfig(
            f"trainer.device={config.trainer.device}, but torch {torch.__version__} sees no GPU on this machine. Start "
            "on a GPU node, or train without one: platform=cpu and VERL_PLATFORM=cpu (PLATFORM=cpu in the launchers)."
        )
    logger.warning("Skipped the attention check: trainer.device=cuda, but this machine has no GPU")


def _failure(layer: Layer) -> str | None:
    """The reason why the layer does not run; None if it runs."""
    try:
        if layer.device == "cpu":
            run_layer(layer)
        else:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                process.submit(run_layer, layer).result()
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        return one_line(error).rstrip(".")[:400]
    return None


def run_layer(layer: Layer) -> None:
    """Run forward and backward over a tiny pack or over padded rows, and check the results.

    Raises:
        RuntimeError, ValueError, ImportError, TypeError: from transformers, torch or the kernel.
        ValueError: gradients are not finite, or one sequence of a pack influences another.
    """
    from transformers import Qwen3Config, Qwen3Model

    for module in layer.modules:
        importlib.import_module(module)
    config = Qwen3Config(
        vocab_size=32,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=layer.heads,
        num_key_value_heads=layer.kv_heads,
        head_dim=layer.head_dim,
        initializer_range=0.5,  # large, so that attention changes the result by more than rounding
        attn_implementation=layer.attention,
    )
    model = Qwen3Model(config).to(layer.device, layer.dtype)

    def run(first_token: int) -> torch.Tensor:
        ids = torch.arange(sum(LENGTHS), device=layer.device) % 8
        ids[: LENGTHS[0]] += first_token
        if layer.packed:
            positions = torch.cat([torch.arange(length) for length in LENGTHS]).to(layer.device)
            hidden = model(input_ids=ids[None], position_ids=positions[None], use_cache=False).last_hidden_state
            return hidden[0, LENGTHS[0] :]
        rows, mask = ids.view(2, -1), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], device=layer.device)
        return model(input_ids=rows, attention_mask=mask, use_cache=False).last_hidden_state[1]

    output = run(0)
    output.float().square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if not all(gradient.isfinite().all() for gradient in gradients):
        raise ValueError("its gradients are not finite")
    if not torch.equal(output, run(16)):
        raise ValueError("one sequence of a pack influences the output of another")
    if layer.tree and (layer.device == "cpu" or layer.dtype in KERNEL_DTYPES):
        _check_tree(model, layer.device)


def _check_tree(model: torch.nn.Module, device: str) -> None:
    """Compare a tree of two rows with the rows. The tolerance is for bfloat16; a wrong mask is off by much more."""
    beginning, one, other = range(5), range(5, 8), range(8, 10)
    nodes = [Node(0, 5, 10, -1), Node(5, 8, 8, 0), Node(8, 10, 10, 0)]
    places = torch.tensor([*beginning, *one, *beginning, *other], device=device)
    depths = torch.tensor([*range(8), *range(5, 7)], device=device)
    results = []
    for ids, positions, branches in (
        (torch.arange(10, device=device)[places], depths[places], None),
        (torch.arange(10, device=device), depths, Branches(nodes, torch.device(device))),
    ):
        model.zero_grad()
        hidden = model(
            input_ids=ids[None], position_ids=positions[None], prefix_tree=branches, use_cache=False
        ).last_hidden_state[0]
        output = (hidden if branches is None else hidden[places]).float()
        (output * torch.linspace(-1, 1, output.numel(), device=device).view_as(output).sin()).sum().backward()
        results.append([output.detach(), *(p.grad.float() for p in model.parameters() if p.grad is not None)])
    for of_rows, of_tree in zip(*results, strict=True):
        if (of_tree - of_rows).norm() > TREE_TOLERANCE * of_rows.norm():
            raise ValueError("a tree of rows is not computed like its rows; set algorithm.prefix_tree=off")
