"""A pack attends within its sequences alone, forward and backward; padded rows and single ones are as with sdpa."""

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ditto.model import attention

LENGTHS = (5, 1, 9, 3)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation=attention.NAME,
    )
    return Qwen3ForCausalLM(config).double()


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


def test_a_pack_is_its_sequences(model, sequences):
    whole = model(**packed(sequences)).logits
    alone = torch.cat([model(input_ids=sequence, use_cache=False).logits for sequence in sequences], dim=1)
    torch.testing.assert_close(whole, alone, rtol=1e-12, atol=1e-12)
    together = gradients(model, model(**packed(sequences)).logits.square().sum())
    apart = gradients(model, sum(model(input_ids=s, use_cache=False).logits.square().sum() for s in sequences))
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, apart[name], rtol=1e-10, atol=1e-10)


def test_what_stands_in_another_sequence_changes_nothing(model, sequences):
    other = [sequence.clone() for sequence in sequences]
    other[0][:] = 63 - other[0]
    one, two = (model(**packed(found)).logits[:, LENGTHS[0] :] for found in (sequences, other))
    assert torch.equal(one, two)


def test_padded_rows_and_single_ones_are_as_with_sdpa(model, sequences):
    rows = torch.zeros(2, 9, dtype=torch.long)
    rows[0, :5], rows[1] = sequences[0][0], sequences[2][0]
    mask = torch.tensor([[1] * 5 + [0] * 4, [1] * 9])
    found = model(input_ids=rows, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(found[0, :5], model(input_ids=sequences[0], use_cache=False).logits[0])
    torch.testing.assert_close(found[1], model(input_ids=sequences[2], use_cache=False).logits[0])
    reference = Qwen3ForCausalLM(model.config).double()
    reference.load_state_dict(model.state_dict())
    reference.set_attn_implementation("sdpa")
    expected = reference(input_ids=rows, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()])


def test_generation_with_a_cache_is_as_with_sdpa(model, sequences):
    reference = Qwen3ForCausalLM(model.config).double()
    reference.load_state_dict(model.state_dict())
    reference.set_attn_implementation("sdpa")
    how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(sequences[2], **how), reference.generate(sequences[2], **how))


def test_a_row_whose_borders_nobody_knows_is_refused(model):
    query = torch.zeros(1, 2, 4, 8)
    with pytest.raises(ValueError, match="borders are unknown"):
        attention.packed_attention(model, query, query, query, None)


def test_a_tower_that_looks_both_ways_is_left_alone():
    """A vision tower hands over neither mask nor position ids, and says that it is not causal."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 4, 8, dtype=torch.float64) for _ in range(3))
    found, _ = attention.packed_attention(torch.nn.Module(), query, key, value, None, is_causal=False)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(found, expected.transpose(1, 2))
