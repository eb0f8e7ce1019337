"""The entry point that verl loads at the end of `import verl`: in the driver, in Ray workers, in vLLM's processes.

It registers the CPU platform. Trainers and agent loops are slow to import, so they are registered where they are used
(`task_runner.py`, `agents/soul/agents.yaml`). verl logs errors of plug-ins only at debug level; `require` turns a
missing plug-in or platform into an error, so that no run silently trains something else.
"""

import os
from importlib.metadata import entry_points


class PluginMissing(RuntimeError):
    """verl did not load this plug-in, or runs on another platform than the config names."""


def register() -> None:
    """Register the CPU platform. If it is selected, apply the patches it needs."""
    from ditto.verl_hooks import platform_cpu  # noqa: F401  (registers itself with verl)

    if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
        from ditto.verl_hooks import compat

        compat.patch_for_cpu()


def require(device: str) -> None:
    """Check that verl loaded this plug-in and runs on the device that the config names, "cpu" or "cuda"."""
    from verl.plugin.platform import PlatformRegistry, get_platform

    installed = any(point.value == "ditto.verl_hooks.plugin" for point in entry_points(group="verl.plugins"))
    switch = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    loads = switch == "auto" or "ditto" in [name.strip() for name in switch.split(",")]
    if "cpu" not in PlatformRegistry.registered_names():
        register()  # verl hides the plug-in's exception: call it again to raise it here
    if not installed or not loads:
        raise PluginMissing(
            "verl does not load the ditto plug-in (group verl.plugins) in its workers. Run `bash scripts/env` or `pip "
            f"install --no-deps -e .`, and unset VERL_USE_EXTERNAL_PLUGINS (it is {switch})."
        )
    platform = get_platform().device_name
    if platform != device:
        raise PluginMissing(
            f"trainer.device={device}, but verl runs on the platform {platform!r}. Without a GPU, set platform=cpu and "
            "export VERL_PLATFORM=cpu; with one, set platform=gpu and unset VERL_PLATFORM."
        )


register()
