"""Tokens in, tokens out: on real vLLM output of an episode of several turns, what would be trained is what was sampled.

A real vLLM engine of the CPU build plays a three-turn task through `SoulAgentLoop` with a real pretrained model; a
recorder in front of the engine notes every prompt and every sampled id. The training sequences are compared with that
record, their log-probs with the model's own, recomputed in transformers, and the prompts with the chat template's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.run import ROOT

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def played(real_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    """What the engine was asked and answered, and the sequences that came out; played in a process of its own."""
    out = tmp_path_factory.mktemp("tokens") / "played.json"
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tests.e2e.three_turns", str(real_model), str(out)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, env=environment)
    return json.loads(out.read_text())


def test_the_trained_ids_are_the_sampled_ids(played: dict) -> None:  # type: ignore[type-arg]
    for sequence in played["sequences"]:
        calls = [c for c in played["calls"] if c["context"] == sequence["context"]]
        assert len(calls) == 3
        ids = sequence["prompt_ids"] + sequence["response_ids"]
        sampled = [i for i, m in zip(sequence["response_ids"], sequence["response_mask"], strict=True) if m]
        assert sampled == [i for call in calls for i in call["sampled"]]
        if sequence["kind"] != "refined_base":
            for (
                call
            ) in calls:  # every turn extended the same sequence: what the engine saw is a prefix of what is trained
                assert ids[: len(call["prompt"])] == call["prompt"]
                assert ids[len(call["prompt"]) :][: len(call["sampled"])] == call["sampled"]


def test_every_prompt_is_what_a_server_shows(played: dict, real_model: Path) -> None:  # type: ignore[type-arg]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(real_model)
    assert len(played["calls"]) == len(played["shown"]) == 6
    for call, messages in zip(played["calls"], played["shown"], strict=True):
        served = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert tokenizer.decode(call["prompt"]) == served
    assert any(call["sampled"][-1] == tokenizer.convert_tokens_to_ids("<|im_end|>") for call in played["calls"])
    assert any(len(call["sampled"]) == 12 for call in played["calls"])  # cut off: the template closes the turn


def test_the_mask_covers_sampled_tokens_only(played: dict) -> None:  # type: ignore[type-arg]
    for sequence in played["sequences"]:
        calls = [c for c in played["calls"] if c["context"] == sequence["context"]]
        mask, logprobs = sequence["response_mask"], sequence["logprobs"]
        assert len(mask) == len(sequence["response_ids"]) == len(logprobs)
        assert sum(mask) == sum(len(c["sampled"]) for c in calls) < len(mask)
        assert all(p == 0.0 for p, m in zip(logprobs, mask, strict=True) if not m)


def test_the_refined_answer_is_also_trained_without_the_feedback(played: dict) -> None:  # type: ignore[type-arg]
    by_kind = {s["kind"]: s for s in played["sequences"]}
    draft, base, feedback = (by_kind[k] for k in ("draft", "refined_base", "refined_feedback"))
    assert base["response_ids"] == feedback["response_ids"]
    assert base["prompt_ids"] == draft["prompt_ids"] != feedback["prompt_ids"]
    assert "mind the second box" in feedback["prompt_text"] and "mind the second box" not in base["prompt_text"]


def test_logprobs_agree_with_the_model(played: dict, real_model: Path) -> None:  # type: ignore[type-arg]
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(real_model, dtype=torch.float32)
    for sequence in played["sequences"]:
        if sequence["kind"] == "refined_base":
            continue
        ids = torch.tensor([sequence["prompt_ids"] + sequence["response_ids"]])
        with torch.no_grad():
            logits = model(ids).logits.log_softmax(-1)
        start = len(sequence["prompt_ids"])
        own = logits[0, start - 1 : -1].gather(-1, ids[0, start:, None])[:, 0]
        mask = torch.tensor(sequence["response_mask"]).bool()
        difference = (own - torch.tensor(sequence["logprobs"])).abs()[mask].mean().item()
        assert difference < 1e-3  # float32 on both sides
