"""The Ray actor that runs the trainer. verl looks trainers up inside this process, so ours are registered here."""

import os
import tempfile
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1

from ditto.launching.placement import with_the_driver
from ditto.run.run_folder import trainer_lock
from ditto.settings import Settings
from soul.cli import logs
from soul.files import disk_writes

# Ray hides a decorated class behind a handle; this is the class itself.
_TaskRunner: Any = TaskRunnerV1.__ray_metadata__.modified_class


class DittoTaskRunner(_TaskRunner):
    """verl's task runner with the ditto trainers registered."""

    def run(self, config: DictConfig) -> None:
        """Train."""
        import ditto.trainer_modes  # noqa: F401  (registers ditto_sync, ditto_colocate_async, ditto_separate_async)

        logs.set_up()
        with trainer_lock(Settings.from_config(config).folders):
            try:
                super().run(config)
            except Exception as error:
                folders = [config.trainer.default_local_dir, config.run.dir, config.gateway.policy.cache_dir]
                folders += [os.environ.get("HF_HOME"), os.environ.get("RAY_TMPDIR"), tempfile.gettempdir()]
                disk_writes.raise_if_full(error, [Path(folder) for folder in folders if folder])
                raise

    def init_agent_loop_manager(self) -> None:
        """Start the agent-loop workers, under the watchdog: a worker that dies here would hang the start-up."""
        with self.trainer.watchdog.phase("start-up of the agent loops"):
            super().init_agent_loop_manager()


def remote_runner() -> Any:
    """The actor's class."""
    return ray.remote(DittoTaskRunner).options(**with_the_driver())
