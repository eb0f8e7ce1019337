"""examples/one_file.py: its loss and gradients are the product's, and it trains a model."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.ditto import tiny_step
from tests.ditto.our_step import ours, settings_of, step_data

pytestmark = pytest.mark.smoke

FILE = Path(__file__).resolve().parents[1] / "examples" / "one_file.py"


@pytest.fixture(scope="module")
def one_file() -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_file", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["one_file"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_loss_and_gradients_are_those_of_the_product(one_file: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(tiny_step.SEQUENCES)
    old = tiny_step.old_log_probs(tiny_step.tiny_model(), rows, tiny_step.perturbed)
    settings = settings_of("ditto", feedback_coef=0.7)
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, prompts_per_mini_batch=5)
    expected, gradients = ours(tiny_step.tiny_model(), step, data, "token-mean", settings, ranks=1, splits=2, update=0)

    attempts: dict[str, object] = {}
    sequences = []
    for row, before in zip(rows, old, strict=True):
        if not row.valid:
            continue
        made = one_file.Attempt(ord(row.prompt), row.kind != "draft", row.reward)
        sequences.append(
            one_file.Sequence_(
                attempts.setdefault(row.episode, made),
                row.kind == "refined_feedback",
                *map(torch.tensor, (row.prompt_ids, row.response_ids)),
                torch.tensor(row.mask, dtype=torch.bool),
                torch.tensor(before, dtype=torch.float64),
            )
        )
    model = tiny_step.tiny_model()
    assert one_file.backward(model, sequences, feedback_coef=0.7) == pytest.approx(expected, rel=1e-6)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert (gradients[name] - parameter.grad).norm() <= 1e-6 * parameter.grad.norm(), name


def test_the_verdict_names_the_fault_and_not_the_answer(one_file: ModuleType) -> None:
    row = one_file.Row("Anna", "Anna puts a key in the box and goes home.", "Anna, where is your key?", "box")
    long = "I think that it must be in the box where I have always put it before."
    verdicts = {text: one_file.judge(row, text) for text in ("In the box.", "In the bag.", long, "")}
    assert [reward for reward, _ in verdicts.values()] == pytest.approx([1.0, 0.3, 0.7, 0.0])
    assert all("box" not in critique for _, critique in verdicts.values())
    assert "few words" in verdicts[long][1] and "one place" in verdicts["In the bag."][1]


def test_it_trains_a_chat_model(tmp_path: Path) -> None:
    from recipe.demo import tiny_model

    tiny_model.build(tmp_path, ["a corpus of a few words"] * 10)
    words = ["--model", str(tmp_path), "--steps", "2", "--prompts", "1", "--drafts", "2", "--tokens", "4"]
    done = subprocess.run([sys.executable, str(FILE), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("reward of drafts") == 2
