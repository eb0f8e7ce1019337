"""docs/models.md: how families of models are trained, found out by `ditto.model.exactness` on small models of each.

python docs/models.py            write the page
python docs/models.py --check    write nothing; fail if the page is not what the code says
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import ditto.model.attention  # noqa: F401 - registers packed
from ditto.model.exactness import TOLERANCE, deviation, head_problem, small_config
from ditto.model.prefix_tree.eligibility import TESTED
from soul.cli.error_border import Parser, reports_errors

PAGE = Path(__file__).resolve().parent / "models.md"
# Model type in transformers -> what its config needs to have layers of every kind.
FAMILIES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "qwen3_vl", "qwen3_moe", "mistral", "gemma2", "gemma3_text"), {}),
    **dict.fromkeys(("olmo2", "olmo3", "phi3", "smollm3", "glm4", "cohere", "gpt_oss", "bloom"), {}),
    "granite": {"logits_scaling": 8.0},  # its checkpoints scale, as Falcon H1's; the defaults are 1
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "falcon_h1", "bamba", "jamba", "nemotron_h", "minimax"), {}),
    **dict.fromkeys(("recurrent_gemma", "mamba", "mamba2"), {}),
    "falcon_h1": {"lm_head_multiplier": 0.05},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 16},
}
HEAD = """# Models

*Made by `docs/models.py`: the numbers come from small models with random weights, built by transformers from each
family's default config. The same check reads your model's own config before a run starts, RL or SFT, and refuses what
is not exact.*

**Packed rows**: several sequences share a row (`use_remove_padding=true`, the default). A recurrent state or a
convolution runs over their border, and then every log-prob is wrong. **Padded rows** need
`use_remove_padding=false`. *Eager* means `override_config.attn_implementation=eager`: the other kinds drop the soft cap
of the attention. **Trees** compute the beginning of a group's rows once ([here](efficiency.md#every-token-once)).
**Head**: the chunked head makes no logits, and is exact where logits are the output of `lm_head`. Where a class or a
value of its config scales or caps them (`logits_scaling`, `logit_scale`, `lm_head_multiplier`,
`final_logit_softcapping`), `use_fused_kernels=false` builds all logits of a micro-batch. **LoRA** lists what
`target_modules=all-linear` adapts.
In some models, experts and routers are single tensors, which can be neither merged nor served as an adapter: name the
other layers in `target_modules`.

Chat templates have a check of their own ([what the model reads](chat_templates.md)).

| model type | packed rows | padded rows | trees | head | LoRA `all-linear` adapts |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of docs/models.md."""
    return HEAD + "".join(f"| {' | '.join(_row(name, kwargs))} |\n" for name, kwargs in FAMILIES.items())


def _row(model_type: str, kwargs: dict[str, Any]) -> list[str]:
    from transformers import CONFIG_MAPPING

    whole = CONFIG_MAPPING[model_type](**kwargs)
    text = small_config(whole.get_text_config())
    assert text is not None, model_type
    rows = [_exact(text, packed=True), _exact(text, packed=False)]
    return [
        f"`{model_type}`",
        *rows,
        "yes" if model_type in TESTED and rows[0] == "exact" else "no",
        "chunked" if head_problem(whole) is None else "all logits",
        _adapted(text),
    ]


def _exact(text: Any, *, packed: bool) -> str:
    """The word for the first attention with which the rows are exact."""
    words = {"packed" if packed else "sdpa": "exact", "eager": "exact, eager"}
    return next((word for name, word in words.items() if deviation(text, name, packed=packed) <= TOLERANCE), "**no**")


def _adapted(text: Any) -> str:
    """The names of the layers that LoRA adapts."""
    from peft import LoraConfig, get_peft_model
    from peft.tuners.lora import Linear, LoraLayer
    from transformers import AutoModel

    with torch.device("meta"):
        try:
            model = get_peft_model(AutoModel.from_config(text), LoraConfig(target_modules="all-linear"))
        except ValueError:
            return "refused by peft: name `target_modules`"
    layers = {name: type(layer) is Linear for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}
    linear, others = ({name.rpartition(".")[2] for name in layers if layers[name] is kind} for kind in (True, False))
    others.discard("base_layer")  # peft wraps a module with several tensors several times
    return _code(linear) + (f"; not {_code(others)}" if others else "")


def _code(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it. Returns an exit code."""
    parser = Parser(prog="python docs/models.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
    check = parser.parse_args(arguments).check
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    text = page()
    if check:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
