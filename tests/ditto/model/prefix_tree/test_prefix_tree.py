"""A tree of rows computes what the rows compute: loss, log-probs, entropy and gradients, in float64."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3VLForConditionalGeneration
from verl.utils import tensordict_utils as tu

from ditto.batch.jagged import response_tokens
from ditto.model import attention
from ditto.model.chunked_head import with_chunked_head
from ditto.model.prefix_tree import tree as trees
from ditto.model.prefix_tree.attention import Branches
from tests.ditto.model.prefix_tree.groups import VOCAB, columns, rows_of_groups
from tests.ditto.model.tiny_qwen import qwen3_vl, text_sizes
from tests.ditto.model.varlen_reference import Kernel, kernel  # noqa: F401  (a fixture)
from tests.ditto.our_step import engine_of

EXACT = dict(rtol=1e-9, atol=1e-10)
TEXT = text_sizes(VOCAB, initializer_range=0.3)


@pytest.fixture(autouse=True)
def _short_beginnings_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "SHORTEST", 3)


def ids_of(rows: list[tuple[list[int], list[int]]]) -> list[np.ndarray]:
    return [np.array(prompt + response) for prompt, response in rows]


# ---- the tree ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_a_path_and_every_long_beginning_stands_once(seed: int) -> None:
    rows = ids_of(rows_of_groups(seed=seed))
    tree, packed = trees.grow(rows), np.concatenate(rows)
    assert np.array_equal(packed[tree.source][tree.places], packed)
    at = 0
    for row in rows:
        path = tree.places[at : at + len(row)].tolist()
        at += len(row)
        while path:  # from the end of the row to its root, node by node
            node = next(node for node in tree.nodes if node.start <= path[-1] < node.end)
            inside = [place for place in path if place >= node.start]
            assert inside == list(range(node.start, path[-1] + 1))
            path = path[: -len(inside)]
            assert (node.parent == -1) == (not path)
            assert not path or path[-1] == tree.nodes[node.parent].end - 1
            assert all(parent.last >= node.last for parent in tree.nodes[node.parent : node.parent + 1] if path)
    beginnings = {tuple(row[: place + 1]) for row in rows for place in range(len(row))}
    assert len(beginnings) <= len(tree.source) <= len(beginnings) + (trees.SHORTEST - 1) * len(rows)


# ---- attention --------------------------------------------------------------------------------------------------


def test_attention_over_a_tree_is_attention_over_its_rows(kernel: Kernel | None) -> None:  # noqa: F811
    """The cascade of a CPU; and for a GPU the arguments of the kernel, with a stand-in that computes the equation."""
    rows = ids_of(rows_of_groups())
    tree = trees.grow(rows)
    places = torch.from_numpy(tree.places)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(1, heads, len(tree.source), 8, dtype=torch.float64, generator=generator, requires_grad=True)
        for heads in (4, 2, 2)
    ]
    upstream = torch.randn(1, len(places), 4, 8, dtype=torch.float64, generator=generator)
    module = torch.nn.Module()
    over_tree, _ = attention.packed_attention(
        module, *inputs, None, prefix_tree=Branches(tree.nodes, places.device), scaling=0.3
    )
    positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
    over_rows, _ = attention.packed_attention(
        module, *(tensor[:, :, places] for tensor in inputs), None, position_ids=positions, scaling=0.3
    )
    torch.testing.assert_close(over_tree[:, places], over_rows, **EXACT)
    gradients = [torch.autograd.grad((output * upstream).sum(), inputs) for output in (over_tree[:, places], over_rows)]
    for of_tree, of_rows in zip(*gradients, strict=True):
        torch.testing.assert_close(of_tree, of_rows, **EXACT)


# ---- the engine -------------------------------------------------------------------------------------------------


def model_of(family: str, *, tied: bool, lora: bool, chunked: bool) -> Any:
    torch.manual_seed(0)
    if family == "qwen3":
        base: Any = Qwen3ForCausalLM
        config: Any = Qwen3Config(**TEXT, tie_word_embeddings=tied)
    else:
        base = Qwen3VLForConditionalGeneration
        config = qwen3_vl(TEXT, tied=tied, image_token_id=151_655, video_token_id=151_656)  # none among these ids
    config._attn_implementation = attention.NAME
    model = (with_chunked_head(base) if chunked else base)(config)
    if lora:
        projections = r".*language_model.*(q_proj|up_proj)" if family == "qwen3_vl" else r".*(q_proj|up_proj)"
        model = get_peft_model(model, LoraConfig(r=4, target_modules=projections, init_lora_weights=False))
    return model.double()


def loss_of(model_output: dict[str, Tensor], data: Any, dp_group: Any, weights: list[Tensor]) -> Any:
    """A sum of the log-probs and entropies of the response tokens by random weights."""
    columns_of = [response_tokens(model_output[name], data["responses"]) for name in ("log_probs", "entropy")]
    loss = sum((column.values() * weight).sum() for column, weight in zip(columns_of, weights, strict=True))
    return loss, {}


CASES = [
    ("qwen3", False, False, True),
    ("qwen3", True, True, True),
    ("qwen3", True, False, False),
    ("qwen3_vl", False, False, True),
    ("qwen3_vl", True, True, True),
    ("qwen3_vl", False, True, False),
]


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize(("family", "tied", "lora", "chunked"), CASES)
def test_loss_and_gradients_are_those_of_the_rows(
    family: str, tied: bool, lora: bool, chunked: bool, checkpointed: bool
) -> None:
    model = model_of(family, tied=tied, lora=lora, chunked=chunked)
    if checkpointed:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if lora:
            model.enable_input_require_grads()
    engine, rows = engine_of(model), rows_of_groups()
    tokens = sum(len(response) for _, response in rows)
    weights = [torch.randn(tokens, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in (1, 2)]
    passes = []
    for as_tree in (False, True):
        data = columns(rows, 4 if family == "qwen3_vl" else 1)
        tu.assign_non_tensor(data, use_fused_kernels=chunked, prefix_tree=as_tree)
        model.zero_grad()
        seen: list[int] = []
        layer = next(module for name, module in model.named_modules() if name.endswith("layers.0.mlp"))
        hook = layer.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape[1]))  # noqa: B023
        loss, output = engine.forward_step(data, partial(loss_of, weights=weights), forward_only=False)
        hook.remove()
        loss.backward()
        answers = {
            name: response_tokens(column, data["responses"]).values() for name, column in output["model_output"].items()
        }
        passes.append((loss, answers, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, seen[0]))
    (plain, plain_answers, plain_gradients, all_tokens), (loss, answers, gradients, unique) = passes
    assert unique < 0.5 * all_tokens
    torch.testing.assert_close(loss, plain, **EXACT)
    torch.testing.assert_close(answers, plain_answers, **EXACT)
    assert gradients.keys() == plain_gradients.keys()
    for name, gradient in gradients.items():
        error = (gradient - plain_gradients[name]).norm() / plain_gradients[name].norm()
        assert error < 1e-6, (name, error)  # transformers' norms compute in float32, also in a float64 model
