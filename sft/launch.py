"""What `train_sft.py` does: compose the config, check it, tokenise the corpus, then start one process a device.

Checks and tokenisation run once, in one process and before torch.distributed: a mistake of the user ends as one
paragraph, and what takes long shows its progress. The processes read what is then on disk.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from agents.errors import SoulError
from ditto.launch import load_config

CONFIG_DIR = Path(__file__).parent / "config"
USER_ERROR = 2
WORKER = "--worker"  # the word that makes this program one of the processes


def config_of(words: list[str]) -> DictConfig:
    """The config that a command line means.

    Raises:
        BadConfig: an unknown key, a malformed override.
    """
    return load_config(["--config-dir", str(CONFIG_DIR), "--config-name", "sft", *words], program="train_sft.py")


def main(words: list[str]) -> int:
    """Returns the exit code: 0, or 2 where the user can mend it; in a process of the training, that of the training."""
    try:
        if "--cfg" in words:
            print(OmegaConf.to_yaml(config_of([word for word in words if word != "--cfg"])))
            return 0
        config = config_of([word for word in words if word != WORKER])
        if WORKER in words:
            from sft.trainer import train

            train(config)
            return 0
        from sft.preflight import check

        print(check(config))
    except SoulError as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return USER_ERROR
    if config.get("dry_run"):
        return 0
    sys.stdout.flush()
    command = [sys.executable, "-m", "torch.distributed.run", *_topology(config)]
    program = Path(__file__).resolve().parent.parent / "train_sft.py"
    os.execv(sys.executable, [*command, str(program), WORKER, *words])


def _topology(config: DictConfig) -> list[str]:
    """torchrun's arguments: one node alone, or this node's place among several."""
    devices = f"--nproc-per-node={config.trainer.n_gpus_per_node}"
    if config.trainer.nnodes == 1:
        return ["--standalone", devices]
    place = {name: os.environ.get(name) for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")}
    return [
        devices,
        f"--nnodes={config.trainer.nnodes}",
        f"--node-rank={place['NODE_RANK'] or 0}",
        f"--master-addr={place['MASTER_ADDR'] or '127.0.0.1'}",
        f"--master-port={place['MASTER_PORT'] or 29500}",
    ]
