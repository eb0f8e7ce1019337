"""The chunked head against full logits: log-probs, entropy, loss, every gradient; alone and in verl's FSDP2 engine."""

import inspect
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from ditto.model import chunked_head
from ditto.model.chunked_head import with_chunked_head
from tests.ditto.model.tiny_qwen import qwen3_vl, text_sizes


def relative_error(value: Tensor, reference: Tensor) -> float:
    return float((value.double() - reference.double()).norm() / reference.double().norm())


def full_head(head: nn.Module, hidden: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    scores = torch.log_softmax(head(hidden) / temperature, dim=-1)
    return scores.gather(-1, labels[..., None]).squeeze(-1), -(scores.exp() * scores).sum(-1)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (1.0, -0.7)], ids=["log-probs", "entropy", "both"])
@pytest.mark.parametrize(("bias", "trained"), [(False, True), (True, True), (False, False)])
def test_alone_it_is_exact(weights: tuple[float, float], bias: bool, trained: bool) -> None:
    """In float64, where only a wrong formula is an error; chunks of 5 do not divide 2 x 9 tokens."""
    torch.manual_seed(0)
    head = nn.Linear(12, 31, bias=bias).double().requires_grad_(trained)
    hidden = torch.randn(2, 9, 12, dtype=torch.float64, requires_grad=True)
    labels, upstream = torch.randint(31, (2, 9)), torch.randn(2, 2, 9, dtype=torch.float64)
    sources = [hidden, *(head.parameters() if trained else [])]
    found = []
    for outputs in (
        full_head(head, hidden, labels, 0.7),
        chunked_head.token_log_probs(head, hidden, labels, 0.7, chunk=5),
    ):
        loss = sum(w * (u * o).sum() for w, u, o in zip(weights, upstream, outputs, strict=True) if w)
        found.append([*outputs, *torch.autograd.grad(loss, sources)])
    for chunked, full in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(chunked, full, rtol=1e-12, atol=1e-12)


def test_it_keeps_one_chunk_of_logits_and_sums_their_gradients_in_float32() -> None:
    """Over 256 chunks in bfloat16 the weight's gradient is as exact as that of one product over all tokens (0.26 % from
    float32's); summed in bfloat16 it would be off by 2 %."""
    torch.manual_seed(0)
    head = nn.Linear(16, 64, bias=False)
    hidden, labels = torch.randn(2048, 16), torch.randint(64, (2048,))
    exact = torch.autograd.grad(full_head(head, hidden, labels, 1.0)[0].sum(), head.weight)[0]
    head.bfloat16()
    shapes: list[tuple[int, ...]] = []
    head.forward = lambda rows: shapes.append(tuple(rows.shape)) or nn.functional.linear(rows, head.weight)  # type: ignore[assignment,func-returns-value]
    chunked = chunked_head.token_log_probs(head, hidden.bfloat16(), labels, chunk=8)[0]
    assert chunked.dtype == torch.float32
    gradient = torch.autograd.grad(chunked.sum(), head.weight)[0]
    assert shapes == [(8, 16)] * 512  # forward, and once more in the backward pass
    del head.forward
    full = full_head(head, hidden.bfloat16(), labels, 1.0)[0]
    of_full = torch.autograd.grad(full.sum(), head.weight)[0]
    assert relative_error(gradient, exact) < 1.2 * relative_error(of_full, exact) < 0.004


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Qwen3VL"])
def test_the_models_are_what_they_were_but_for_a_temperature(family: str) -> None:
    base = getattr(transformers, f"{family}For{'ConditionalGeneration' if family == 'Qwen3VL' else 'CausalLM'}")
    small = text_sizes(31, num_hidden_layers=1)
    config = qwen3_vl(small) if family == "Qwen3VL" else getattr(transformers, f"{family}Config")(**small)
    torch.manual_seed(0)
    model = with_chunked_head(base)(config).double()
    assert type(model) is not base and isinstance(model, base) and type(model).__name__ == base.__name__
    ids = torch.randint(27, (2, 7))
    logits = model(input_ids=ids).logits
    torch.testing.assert_close(logits, base.forward(model, input_ids=ids).logits, rtol=0, atol=0)
    found = model(input_ids=ids, temperature=0.7, return_dict=True)
    expected = full_head(nn.Identity(), logits, ids.roll(-1, -1), 0.7)
    torch.testing.assert_close((found.log_probs, found.entropy), expected, rtol=1e-12, atol=1e-12)
    assert found.logits is None
    assert "attention_mask" in inspect.signature(model.forward).parameters  # generate() asks


def test_a_head_with_dropout_is_refused() -> None:
    head = nn.Linear(4, 8)
    head.lora_dropout = nn.Dropout(0.1)
    with pytest.raises(RuntimeError, match="dropout"):
        chunked_head.token_log_probs(head, torch.ones(3, 4), torch.ones(3, dtype=torch.long))


# ---- in verl's engine -------------------------------------------------------------------------------------------


def run_engine(folder: Path, ranks: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All cases on so many ranks. One runs in this process, which saves importing verl once more."""
    from tests.ditto.model import head_engine
    from tests.ditto.verl_hooks.verl_patches import undone_afterwards

    head_engine.make_models(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0"}
    if ranks == 1:
        monkeypatch.setattr(chunked_head, "LOGITS_PER_CHUNK", chunked_head.LOGITS_PER_CHUNK)  # undone at the end
        for name, value in {**variables, "RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        with undone_afterwards():
            head_engine.main(folder)
    else:
        command = [sys.executable, "-m", head_engine.__name__, str(folder)]
        logs = [(folder / f"{rank}.log").open("w+") for rank in range(ranks)]
        processes = [
            subprocess.Popen(
                command,
                cwd=Path(__file__).parents[3],
                env={**os.environ, **variables, "RANK": str(rank)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            for rank, log in enumerate(logs)
        ]
        codes = [process.wait(300) for process in processes]
        assert codes == [0] * ranks, "\n".join(Path(log.name).read_text()[-3000:] for log in logs)
    found: dict[str, Any] = torch.load(folder / "results.pt", weights_only=True)
    return found


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.e2e)])
def test_in_verls_engine_it_is_exact(ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RL (with an entropy term) and SFT, temperature 0.7, several micro-batches of several chunks."""
    pytest.importorskip("verl")  # the other tests run on a bare machine, too
    from tests.ditto.model import head_engine

    results = run_engine(tmp_path, ranks, monkeypatch)
    # Why there is a head of ours: when this fails, verl's own may do.
    assert "mixed torch.Tensor and DTensor" in results.pop("verl's own head")
    assert set(results) == {f"{case}, {loss}" for case in head_engine.CASES for loss in ("rl", "sft")}
    for case, heads in results.items():
        full, chunked = heads["full"], heads["chunked"]
        assert chunked["gradients"].keys() == full["gradients"].keys()
        assert {value.dtype for value in chunked["outputs"].values()} == {torch.float32}
        trained = {name: g for name, g in full["gradients"].items() if "visual" not in name}
        assert len(trained) >= 6 and all(g.norm() > 0 and g.dtype == torch.float32 for g in trained.values())
        errors = {name: relative_error(chunked["gradients"][name], g) for name, g in trained.items()}
        whole = {head: torch.cat([heads[head]["gradients"][name].flatten() for name in trained]) for head in heads}
        found = {"all gradients": relative_error(whole["chunked"], whole["full"])}
        found["loss"] = relative_error(chunked["loss"], full["loss"])
        found |= {name: relative_error(chunked["outputs"][name], full["outputs"][name]) for name in full["outputs"]}
        print(
            case,
            *(f"{name} {error:.1e}" for name, error in found.items()),
            f"worst gradient {max(errors.values()):.1e}",
        )
        if "bfloat16" not in case:
            assert max(found.values()) <= 1e-6, (case, found)
            # A norm's gradient is a small difference of large terms, each of which float32 knows to 6e-8.
            assert max(errors.values()) <= 4e-6, (case, errors)
            continue
        # In bfloat16 verl's full logits round log-probs and entropy to 8 bits; ours are nearer to float32.
        exact = results[case.replace(", bfloat16", "")]["full"]["outputs"]
        for name, reference in exact.items():
            ours, theirs = (relative_error(head["outputs"][name], reference) for head in (chunked, full))
            assert ours < theirs < 0.02, (case, name, ours, theirs)
        assert max(errors.values()) < 0.1
