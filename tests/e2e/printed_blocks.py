"""Run a marked block of a page as it is printed, with a model and a judge of this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.run import ROOT


def run_block(block: str, folder: Path, model: Path, page: str = "README.md", **environment: str) -> str:
    """Run a block of a page in `folder`; returns what it printed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (commands,) = re.findall(rf"<!-- block: {block} -->\n```bash\n(.*?)```", text, re.DOTALL)
    commands = re.sub(r"HuggingFaceTB/SmolLM2-135M-Instruct|Qwen/Qwen3-0.6B", str(model), commands)
    commands = re.sub(r"bash (recipe/|run_)", rf"bash {ROOT}/\1", commands)
    commands = commands.replace("export OPENAI_API_KEY=...", "export OPENAI_API_KEY=none")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "JUDGE_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "PLATFORM": "cpu", "COLUMNS": "100", "HF_HUB_OFFLINE": "1"}
    command = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(
        command, cwd=folder, env={**kept, **own, **environment}, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout
