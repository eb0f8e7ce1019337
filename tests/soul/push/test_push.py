"""`soul push` against a hub on 127.0.0.1: what arrives, what stays here, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")

from soul.cli.error_border import USER_ERROR
from soul.push.__main__ import main
from tests.soul.evaluate.vllm_replaced import model
from tests.soul.push.fake_hub import FakeHub, push

CARD = "---\nlibrary_name: transformers\n---\n# A simulator\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a checkpoint as training leaves it."""
    folder = model(tmp_path / "run" / "global_step_7")
    files = {
        "README.md": CARD,
        "tokenizer.json": '{"sk-abcdefgh": 1}',
        "lora_adapter/adapter_config.json": "{}",
        "manifest.json": "{}",
        "data.pt": "position",
        "actor/optim_world_size_1_rank_0.pt": "state",
        ".cache/x": "x",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder.parent / "latest_checkpointed_iteration.txt").write_text("7")
    return folder.parent


def test_model_and_card_arrive_and_the_state_stays_here(hub: FakeHub, run: Path) -> None:
    done = push(hub, str(run), "me/simulator", "--private")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{hub.url}/me/simulator/commit/1a2b"
    assert hub.repos == {"me/simulator": True}
    files = hub.files["me/simulator"]
    model_files = {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    assert files.keys() == model_files | {"lora_adapter/adapter_config.json"}
    assert files["README.md"].decode() == CARD
    assert files["model.safetensors"] == (run / "global_step_7" / "model.safetensors").read_bytes()
    assert "Not uploaded: .cache, actor, data.pt, manifest.json" in done.stdout


def test_a_wrong_token_is_named_and_not_shown(hub: FakeHub, run: Path) -> None:
    done = push(hub, str(run), "me/simulator", token="hf_another_one")
    assert done.returncode == 1 and "HF_TOKEN" in done.stderr and "hf_another" not in done.stderr + done.stdout
    assert hub.repos == {}


def test_a_dry_run_lists_the_files_and_needs_no_hub(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run / "global_step_7"), "me/simulator", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "Would upload" in shown and "  model.safetensors  " in shown and "optim_world" not in shown


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("hf_token.txt", "nothing", "hf_token.txt, name: this looks like a key"),
        (".env", "A=1", None),  # left out, like everything hidden
        ("id_rsa", "x", "id_rsa, name: this looks like a key"),
        ("notes.md", "use hf_" + "a1B2" * 8, "notes.md, line 1: this looks like a key"),
        ("lora_adapter/README.md", "sk-" + "a1B2" * 8, "lora_adapter/README.md, line 1: this looks like a key"),
        (
            "generation_config.json",
            '{"endpoint": "value-of-a-variable-17"}',
            "generation_config.json, line 1",
        ),
        ("model.safetensors", "cut off", "cannot be read"),
        (
            "model-00002-of-00002.safetensors.index.json",
            '{"weight_map": {"w": "lost.safetensors"}}',
            "lost.safetensors",
        ),
    ],
)
def test_a_secret_and_a_damaged_model_are_refused(
    name: str,
    content: str,
    says: str | None,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "value-of-a-variable-17")
    (run / "global_step_7" / name).write_text(content)
    code = main([str(run), "me/simulator", "--dry-run"])
    shown = capsys.readouterr()
    if says:
        assert code == USER_ERROR and says in shown.err and "a1B2" not in shown.err
    else:
        assert code == 0 and ".env" not in shown.out.split("Not uploaded")[0]
