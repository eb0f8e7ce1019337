"""An environment whose `vllm` is a stand-in (stand_in_vllm.py), and models that it serves."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("stand_in_vllm.py")


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put it beside the interpreter, and take the machine's own settings of endpoints away.

    Returns:
        The folder in which it tells of itself.
    """
    folder, told = tmp_path / "bin", tmp_path / "told"
    folder.mkdir()
    told.mkdir()
    (folder / "vllm").write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n')
    (folder / "vllm").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("STAND_IN_FOLDER", str(told))
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "JUDGE_"))]:
        monkeypatch.delenv(name)
    return told


def model(folder: Path, weights: bytes = b"weights", **config: Any) -> Path:
    """A folder that looks like a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4096, **config}))
    write_weights(folder / "model.safetensors", weights)
    return folder


def write_weights(file: Path, weights: bytes = b"weights") -> None:
    """A whole file of one tensor with these bytes."""
    tensor = {"dtype": "U8", "shape": [len(weights)], "data_offsets": [0, len(weights)]}
    header = json.dumps({"weights": tensor}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + weights)
