"""Evaluate a checkpoint on SOUL during the training, in the same way as `eval.sh local`.

One process starts the evaluation while the others wait; meanwhile the training's state is on the CPU. A failed
evaluation does not end the training: it is logged, and the metric `val/rl_test_failed` is 1.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from sft.run import stop

logger = logging.getLogger(__name__)
POLL_S = 0.2
# Variables that torchrun sets for its processes and that vLLM would read as well.
_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_", "LOCAL_", "GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_NCCL_", "OMP_NUM_")
_CORPUS = "DATA_DIR"  # the folder of the corpus; to the evaluation it would be that of the task files


@dataclass(frozen=True)
class GenerativeTest:
    """Evaluates checkpoints of a run on task files or sets of SOUL."""

    files: Sequence[str]
    folder: Path
    arguments: Sequence[str]

    @classmethod
    def from_config(cls, config: DictConfig) -> GenerativeTest | None:
        """The test that the config asks for; None if it asks for none."""
        trainer = config.trainer
        files = str(trainer.rl_test_files or "").split()
        if not trainer.rl_test_freq or not files:
            return None
        words = ["--platform", "cpu" if trainer.device == "cpu" else "gpu", "--limit", trainer.rl_test_limit]
        words += [*trainer.rl_test_arguments, "--", *trainer.rl_test_vllm_arguments]
        return cls(files, Path(config.run.dir) / "rl_test", [str(word) for word in words])

    def run(self, checkpoint: Path, step: int) -> dict[str, float]:
        """Evaluate a checkpoint.

        Returns:
            `val-core/<set>/reward/mean@1` and `val/<set>/invalid_share` of each set, and `val/rl_test_failed`. Empty if
            a stop is requested meanwhile; the next evaluation of the same step then continues from its journal.
        """
        command = [sys.executable, "-m", "soul", "evaluate", "local", *self.files, "--model", str(checkpoint)]
        command += ["--out", str(self.folder), "--name", f"step_{step:06d}", *self.arguments]
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith((*_TORCHRUN, _CORPUS))}
        with (self.folder / f"step_{step:06d}.log").open("wb") as log:
            logger.info("evaluating step %d on %s; log: %s", step, ", ".join(self.files), log.name)
            # SIGTERM, because the evaluation then ends its server.
            end_with_parent = partial(stop.die_with_parent, os.getpid(), signal.SIGTERM)
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_parent,
                start_new_session=True,  # torchrun signals the whole group of a rank, and one signal is enough
            )
            while process.poll() is None:
                if stop.requested():
                    process.terminate()
                    process.wait()
                time.sleep(POLL_S)
        if stop.requested():
            return {}
        if process.returncode:
            logger.error("the generative test of step %d failed (exit code %d): %s", step, process.returncode, log.name)
            return {"val/rl_test_failed": 1.0}
        return {"val/rl_test_failed": 0.0, **self._numbers(step)}

    def _numbers(self, step: int) -> dict[str, float]:
        file = max(self.folder.glob(f"step_{step:06d}-*/results.json"), key=lambda path: path.stat().st_mtime)
        numbers: dict[str, float] = {}
        for name, result in json.loads(file.read_text(encoding="utf-8"))["sets"].items():
            if result["mean"] is not None:
                numbers[f"val-core/{name}/reward/mean@1"] = result["mean"]
            if result["samples"]:
                numbers[f"val/{name}/invalid_share"] = result["invalid"] / result["samples"]
        return numbers
