"""The Ray actor that runs the trainer. verl looks its trainers up inside this process, so ours register here."""

from typing import Any

import ray
from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1

# Ray hides a decorated class behind a handle; this is the class itself.
_TaskRunner: Any = TaskRunnerV1.__ray_metadata__.modified_class


class DittoTaskRunner(_TaskRunner):
    """verl's task runner with the ditto trainers registered."""

    def run(self, config: DictConfig) -> None:
        """Train; raises what the trainer raises."""
        import ditto.trainer  # noqa: F401  (registers ditto_sync, ditto_colocate_async, ditto_separate_async)

        super().run(config)

    def init_agent_loop_manager(self) -> None:
        """Start the agent-loop workers; the last part of the start-up, so the watchdog looks at it too."""
        with self.trainer.watchdog.phase("start-up of the agent loops"):
            super().init_agent_loop_manager()


def remote_runner() -> Any:
    """The actor class for verl's `run_ppo`."""
    return ray.remote(DittoTaskRunner)
