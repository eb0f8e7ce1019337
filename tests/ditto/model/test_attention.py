"""A pack attends within its sequences alone, forward and backward; padded rows and single ones are as with sdpa."""

import copy

import pytest
import torch
from transformers import Qwen3ForCausalLM

from benchmarks.gpu import measure_attention
from ditto.model import attention
from tests.ditto.model.tiny_qwen import qwen3
from tests.ditto.model.varlen_reference import Kernel, kernel  # noqa: F401  (a fixture)

LENGTHS = (5, 1, 9, 3)
BORDERS = [0, 5, 6, 15, 18]
LAYERS = 2


def tiny(**changed):
    torch.manual_seed(0)
    return Qwen3ForCausalLM(qwen3(64, attn_implementation=attention.NAME, **changed)).double()


def with_sdpa(model):
    reference = type(model)(copy.deepcopy(model.config)).double()  # set_attn_implementation writes into the config
    reference.load_state_dict(model.state_dict())
    reference.set_attn_implementation("sdpa")
    return reference


@pytest.fixture(scope="module")
def model():
    return tiny()


@pytest.fixture(scope="module")
def sequences():
    torch.manual_seed(1)
    return [torch.randint(64, (1, length)) for length in LENGTHS]


def packed(sequences):
    positions = torch.cat([torch.arange(sequence.shape[1]) for sequence in sequences])[None]
    return {"input_ids": torch.cat(sequences, dim=1), "position_ids": positions, "use_cache": False}


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    "device, bound",
    [
        ("cpu", 1e-6),
        # bfloat16 keeps 8 bits
        pytest.param("cuda", 2e-2, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")),
    ],
)
def test_it_is_the_equation(device, bound):
    """Forward and backward, with groups of heads and a sequence of one token: in float32, and the kernel on a GPU."""
    for case in measure_attention(device)["packs"]:
        worst = max(case["packed"]["max_relative_error"].values())
        assert worst < bound, case


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_pack_is_its_sequences(model, sequences, kernel: Kernel | None, checkpointed):  # noqa: F811
    alone = torch.cat([with_sdpa(model)(input_ids=s, use_cache=False).logits for s in sequences], dim=1)
    apart = gradients(model, sum(model(input_ids=s, use_cache=False).logits.square().sum() for s in sequences))
    if kernel:
        kernel.calls.clear()
    model.train()
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    whole = model(**packed(sequences)).logits
    torch.testing.assert_close(whole, alone, rtol=1e-12, atol=1e-12)
    together = gradients(model, whole.square().sum())
    model.gradient_checkpointing_disable()
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, apart[name], rtol=1e-10, atol=1e-10)
    if kernel:
        assert kernel.calls == [(BORDERS, (-1, 0))] * LAYERS * (1 + checkpointed)


def test_the_borders_are_found_once_for_all_layers(model, sequences, monkeypatch):
    """On a GPU the search makes the host wait: once a forward pass, not in every layer, nor in the backward pass."""
    searched = []
    search = attention._find_sequences
    monkeypatch.setattr(attention, "_find_sequences", lambda positions: searched.append(1) or search(positions))
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = packed(sequences)
    model(**inputs).logits.sum().backward()
    model.gradient_checkpointing_disable()
    assert len(searched) == 1
    inputs["position_ids"][0, 5:] = torch.arange(13)  # the same tensor, with other sequences in it
    changed = model(**inputs).logits[:, 5:]
    joined = [sequences[0], torch.cat(sequences[1:], dim=1)]
    assert len(searched) == 2
    torch.testing.assert_close(changed, model(**packed(joined)).logits[:, 5:])


def test_padded_rows_and_single_ones_are_as_with_sdpa(model, sequences):
    rows = torch.zeros(2, 9, dtype=torch.long)
    rows[0, :5], rows[1] = sequences[0][0], sequences[2][0]
    mask = torch.tensor([[1] * 5 + [0] * 4, [1] * 9])
    found = model(input_ids=rows, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(found[0, :5], model(input_ids=sequences[0], use_cache=False).logits[0])
    torch.testing.assert_close(found[1], model(input_ids=sequences[2], use_cache=False).logits[0])
    expected = with_sdpa(model)(input_ids=rows, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()])


def test_generation_with_a_cache_is_as_with_sdpa(model, sequences, kernel: Kernel | None):  # noqa: F811
    how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(sequences[2], **how), with_sdpa(model).generate(sequences[2], **how))


def test_a_window_is_kept(sequences):
    """Models with sliding windows get sdpa's mask, within the sequences of the pack."""
    model = tiny(use_sliding_window=True, sliding_window=4, max_window_layers=1)
    assert model.config.layer_types == ["full_attention", "sliding_attention"]
    whole = model(**packed(sequences)).logits
    reference = with_sdpa(model)
    alone = torch.cat([reference(input_ids=sequence, use_cache=False).logits for sequence in sequences], dim=1)
    torch.testing.assert_close(whole, alone, rtol=1e-12, atol=1e-12)


def test_what_it_cannot_compute_is_refused(model):
    query = torch.zeros(1, 2, 4, 8)
    with pytest.raises(ValueError, match="borders are unknown"):
        attention.packed_attention(model, query, query, query, None)
    with pytest.raises(ValueError, match="softcap"):
        attention.packed_attention(model, query, query, query, None, position_ids=torch.arange(4)[None], softcap=50.0)
