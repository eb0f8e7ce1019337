"""The command `train_sft.py`: compose the config, check it, tokenise the corpus, then start one process per device.

Checks and tokenisation run once, in one process and before torch.distributed: a user's mistake is reported as one
paragraph, and slow work shows its progress. The processes then read the result from disk. Meanwhile this process holds
the lock of the run's folder, so a second start fails at once.
"""

from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.key_types import printed
from ditto.launching.compose import load_config
from sft.config_checks import SFT_KEYS, TRAIN_SFT, check_config
from soul.cli.error_border import run_command
from soul.files.folder_lock import FolderLock

PROGRAM = Path(__file__).resolve().parent.parent / "train_sft.py"
WORKER = "--worker"  # the argument with which this program becomes one of the processes


def config_of(words: list[str]) -> DictConfig:
    """Compose the config from a command line."""
    return load_config(words, TRAIN_SFT)


def main(words: list[str]) -> int:
    """Run the launcher, or with `--worker` one process of the training. Returns the exit code."""
    if WORKER in words:
        from sft.run.ranks import rank_main

        return rank_main(lambda: _train([word for word in words if word != WORKER]))
    return run_command(lambda: _launch(words))


def _train(words: list[str]) -> int:
    from sft.trainer import train

    return train(config_of(words))


def _launch(words: list[str]) -> int:
    if "--cfg" in words:
        print(printed(config_of([word for word in words if word != "--cfg"]), SFT_KEYS))
        return 0
    config = config_of(words)
    check_config(config)
    from ditto.run.checkpoint import rename_damaged
    from ditto.run.run_folder import RunFolder
    from sft.preflight import CHECKPOINTING, TOKENS, check
    from sft.run.checkpoints import choose
    from sft.run.ranks import node_rank, run_ranks

    leads = node_rank(config) == 0  # the first node decides for all nodes
    root = Path(config.trainer.default_local_dir).absolute()
    with ExitStack() as locks:
        if leads and not config.get("dry_run"):
            for folder in sorted({Path(config.run.dir).absolute(), root}):
                locks.enter_context(FolderLock(folder))
        choice = choose(config) if leads else None
        print(check(config, choice), flush=True)
        if config.get("dry_run"):
            return 0
        if choice:
            rename_damaged(root, choice)
            RunFolder(Path(config.run.dir)).rewind(choice.step)
        chosen = [f"{key}={OmegaConf.select(config, key)}" for key in (TOKENS, CHECKPOINTING)]  # by `check`
        program = [str(PROGRAM), WORKER, *words, *chosen]
        return run_ranks(config, program, choice.folder if choice else None)
