"""A micro-batch as one pack of the tokens of its tree, and the model's outputs as the losses expect them.

verl's engine sees a micro-batch of one row: the tree's tokens, each at the position that it has in its rows. The output
layer then runs only where the next token belongs to a response, once for each such token of the tree: the log-prob of
a branch's first token comes from the last position of its parent. Afterwards every response token of every row gets
its value back, and gradients add up on the way. The values of prompt tokens, which no loss reads, are 0.
"""

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from ditto.batch.jagged import row_lengths, with_values
from ditto.model.prefix_tree.attention import Branches
from ditto.model.prefix_tree.tree import grow
from ditto.model.teaching import next_token_places

USE_PREFIX_TREE = "prefix_tree"  # what the trainer says to the engine, in every batch
_SETTINGS = (
    "use_remove_padding",
    "use_fused_kernels",
    "pad_mode",
    "temperature",
    "calculate_entropy",
    "calculate_sum_pi_squared",
)


def wants_tree(micro_batch: TensorDict) -> bool:
    """True if the trainer wants these rows computed as a tree."""
    return bool(tu.get_non_tensor_data(micro_batch, USE_PREFIX_TREE, False))


class TreePack:
    """A micro-batch as a tree.

    Attributes:
        inputs: the micro-batch that verl makes the model's inputs of.
        outputs: the micro-batch that verl makes the model's outputs of.
    """

    def __init__(self, micro_batch: TensorDict) -> None:
        ids, self._rows = micro_batch["input_ids"].values(), micro_batch["input_ids"]
        device = ids.device
        tree = grow([row.numpy() for row in ids.cpu().split(row_lengths(self._rows).tolist())])
        source, places = (torch.from_numpy(array).to(device) for array in (tree.source, tree.places))
        self.branches = Branches(tree.nodes, device)
        # verl puts the value of a token at the token before it.
        self._asked = next_token_places(micro_batch["prompts"], micro_batch["responses"])
        answered = self._asked + 1
        # A token of the tree is its whole beginning, so it also says what it is predicted from.
        predicted, self._value_of = places[answered].unique(return_inverse=True)
        predictor = torch.empty_like(source)
        predictor[places[answered]] = places[self._asked]
        self._predictors, self._labels = predictor[predicted], ids[source[predicted]]
        settings = {name: tu.get_non_tensor_data(micro_batch, name, None) for name in _SETTINGS if name in micro_batch}
        positions = micro_batch["position_ids"].values()[..., source].contiguous()
        self.inputs = tu.get_tensordict(
            {"input_ids": _one_row(ids[source]), "position_ids": _one_row(positions)}, settings
        )
        self.outputs = tu.get_tensordict({"input_ids": _one_row(self._labels)}, settings)

    def complete(self, inputs: dict[str, Any], arguments: dict[str, Any]) -> None:
        """Add to the model's inputs, and to what verl keeps for its outputs, what makes the pack a tree."""
        inputs["prefix_tree"] = self.branches
        arguments["input_ids_rmpad_rolled"] = self._labels
        arguments["temperature_rmpad"] = arguments["temperature_rmpad"][self._predictors]
        if "shift_labels" in inputs:  # the chunked head
            inputs["shift_labels"] = self._labels[None]
            inputs["logits_to_keep"] = self._predictors

    def select(self, output: Any) -> Any:
        """The model's output at the positions that predict a response token."""
        if output.get("logits") is not None:
            output["logits"] = output.logits[:, self._predictors]
        return output

    def expand(self, column: Tensor) -> Tensor:
        """A value for each token of the rows, from the values of the tree."""
        values = column.values().new_zeros(len(self._rows.values()))
        values = values.index_put((self._asked,), column.values()[self._value_of])
        return with_values(values, self._rows)


def _one_row(values: Tensor) -> Tensor:
    """A jagged tensor of one row; its tokens are the last dimension."""
    offsets = torch.tensor([0, values.shape[-1]], device=values.device)
    return torch.nested.nested_tensor_from_jagged(
        values, offsets, jagged_dim=values.dim(), min_seqlen=values.shape[-1], max_seqlen=values.shape[-1]
    )
