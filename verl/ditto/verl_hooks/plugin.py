"""The entry point that verl loads at the end of `import verl`, in the driver, in Ray workers and in vLLM's processes.

It registers the CPU platform. Trainers and agent loops are heavy imports and are registered where they are used
(`task_runner.py`, `agents/soul/agents.yaml`). verl swallows errors of plug-ins at debug level: `require` makes a
missing plug-in or platform a loud error instead of a run that silently trains something else.
"""

import os
from importlib.metadata import entry_points


class PluginMissing(RuntimeError):
    """verl runs without this plug-in, or on another platform than the config says."""


def register() -> None:
    """Register the CPU platform and, on that platform alone, the patches it needs."""
    from ditto.verl_hooks import platform_cpu  # noqa: F401  (registers itself with verl)

    if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
        from ditto.verl_hooks import compat

        compat.patch_for_cpu()


def require(device: str) -> None:
    """Check that verl found this plug-in and runs on the device that the config names.

    Args:
        device: `trainer.device`, "cpu" or "cuda".

    Raises:
        PluginMissing: with the remedy.
    """
    if not any(point.value == "ditto.verl_hooks.plugin" for point in entry_points(group="verl.plugins")):
        raise PluginMissing(
            "verl does not see the ditto plug-in: the entry point `ditto` of the group verl.plugins is not installed "
            "in this environment. Run `bash scripts/env`, or `pip install --no-deps -e .` in the active environment."
        )
    switch = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if switch != "auto" and "ditto" not in [name.strip() for name in switch.split(",")]:
        raise PluginMissing(
            f"VERL_USE_EXTERNAL_PLUGINS={switch} keeps verl from loading the ditto plug-in in the workers: unset it, "
            "or add ditto to it."
        )
    from verl.plugin.platform import PlatformRegistry, get_platform

    if "cpu" not in PlatformRegistry.registered_names():
        register()  # verl swallows what a plug-in raises: let it out
    if "cpu" not in PlatformRegistry.registered_names():
        raise PluginMissing("verl did not load the ditto plug-in; VERL_USE_EXTERNAL_PLUGINS must be auto or unset.")
    found = get_platform().device_name
    if found != device:
        raise PluginMissing(
            f"The config trains on trainer.device={device} but verl runs on the platform {found!r}. Without a GPU use "
            "the config group platform=cpu and export VERL_PLATFORM=cpu (run_rl.sh does both); with one, "
            "platform=gpu and no VERL_PLATFORM."
        )


register()
