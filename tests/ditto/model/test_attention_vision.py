"""Qwen3-VL, the recipe's model, over packs: text and images, as verl builds, patches and feeds it.

verl replaces the model's forward and passes position ids in four rows (the tokens' own, then time, height, width). The
reference is transformers' own model, one sequence at a time with sdpa.
"""

import copy
from collections.abc import Iterator

import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from ditto.model import attention
from tests.ditto.model.tiny_qwen import qwen3_vl, text_sizes
from tests.ditto.model.varlen_reference import Kernel, kernel  # noqa: F401  (a fixture)
from tests.ditto.verl_hooks.verl_patches import undone_afterwards

IMAGE, VIDEO, START, END = 60, 61, 62, 63
PATCH = 3 * 2 * 2 * 2
GRID = [[1, 4, 4], [1, 4, 8]]  # two images: 16 and 32 patches, of which four each become one token


@pytest.fixture(scope="module")
def model() -> Qwen3VLForConditionalGeneration:
    torch.manual_seed(0)
    config = qwen3_vl(text_sizes(64, head_dim=16), attn_implementation=attention.NAME)
    config.vision_config.depth = 2
    return Qwen3VLForConditionalGeneration(config).double()


@pytest.fixture(scope="module")
def sequences() -> list[dict[str, torch.Tensor]]:
    """Text, one token, and a text with two images."""
    torch.manual_seed(1)

    def text(length: int) -> list[int]:
        return torch.randint(60, (length,)).tolist()

    def image(grid: list[int]) -> list[int]:
        return [START, *[IMAGE] * (grid[1] * grid[2] // 4), END]

    with_images = [*text(3), *image(GRID[0]), *text(2), *image(GRID[1]), *text(4)]
    patches = torch.randn(sum(h * w for _, h, w in GRID), PATCH, dtype=torch.float64)
    rows = [text(7), text(1), with_images, text(5)]
    return [
        {"input_ids": torch.tensor(row)}
        | ({"pixel_values": patches, "image_grid_thw": torch.tensor(GRID)} if IMAGE in row else {})
        for row in rows
    ]


@pytest.fixture
def patched_by_verl(model: torch.nn.Module) -> Iterator[None]:
    """Afterwards the classes are as they were."""
    with undone_afterwards():
        apply_monkey_patch(model, use_remove_padding=True)
        yield


def alone(
    model: Qwen3VLForConditionalGeneration, sequences: list[dict[str, torch.Tensor]]
) -> tuple[torch.Tensor, dict[str, torch.Tensor], list[torch.Tensor]]:
    """transformers' own model with sdpa: logits, gradients, and the position ids in four rows."""
    reference = Qwen3VLForConditionalGeneration(copy.deepcopy(model.config)).double()
    reference.load_state_dict(model.state_dict())
    reference.set_attn_implementation("sdpa")
    logits, positions = [], []
    for sequence in sequences:
        ids = sequence["input_ids"][None]
        grid = {name: value for name, value in sequence.items() if name != "input_ids"}
        kinds = (ids == IMAGE).int()
        logits.append(reference(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **grid).logits[0])
        three, _ = reference.model.get_rope_index(ids, kinds, image_grid_thw=grid.get("image_grid_thw"))
        positions.append(torch.cat([torch.arange(ids.shape[1])[None], three[:, 0]]))
    found = torch.cat(logits)
    found.square().sum().backward()
    return found.detach(), {name: p.grad for name, p in reference.named_parameters()}, positions


def as_verl_feeds_it(
    sequences: list[dict[str, torch.Tensor]], positions: list[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """What verl's engine makes of a micro-batch."""
    micro_batch = tu.get_tensordict(
        {
            "input_ids": tu.nested_tensor_from_tensor_list([sequence["input_ids"] for sequence in sequences]),
            "position_ids": tu.nested_tensor_from_tensor_list(positions),
            "multi_modal_inputs": [{k: v for k, v in s.items() if k != "input_ids"} for s in sequences],
        },
        {"use_remove_padding": True, "temperature": 1.0},
    )
    engine = object.__new__(FSDPEngineWithLMHead)
    engine.use_ulysses_sp = engine.pad_to_length = False
    inputs, _ = engine.prepare_model_inputs(micro_batch)
    return inputs


@pytest.mark.parametrize("images", [True, False], ids=["text and images", "text alone"])
def test_a_pack_is_its_sequences(model, sequences, kernel: Kernel | None, request, images: bool) -> None:  # noqa: F811
    chosen = sequences if images else [sequence for sequence in sequences if "pixel_values" not in sequence]
    expected, gradients, positions = alone(model, chosen)
    request.getfixturevalue("patched_by_verl")
    inputs = as_verl_feeds_it(chosen, positions)
    assert inputs["position_ids"].shape == (4, 1, len(expected)) and inputs["attention_mask"] is None
    model.zero_grad()
    logits = model(**inputs, use_cache=False).logits[0]
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        if gradients[name] is not None:  # verl shows an empty image to a text, with weight 0
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-8, atol=1e-8)
    if kernel:
        borders = [0, *torch.tensor([len(sequence["input_ids"]) for sequence in chosen]).cumsum(0).tolist()]
        shown = [16, 32] if images else [16]
        looks = [([0, patches], (-1, -1)) for patches in shown]  # a vision tower looks both ways, an image at a time
        assert kernel.calls == looks * 2 + [(borders, (-1, 0))] * 2
