"""A missing plug-in or a wrong platform is a loud error with its remedy, never a run that trains something else.

verl swallows errors of plug-ins at debug level; `plugin.require` and VERL_PLATFORM are what makes them heard.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from verl.plugin.platform import PlatformRegistry, get_platform

from ditto import plugin
from ditto.plugin import PluginMissing, require

OWN = SimpleNamespace(name="ditto", value="ditto.plugin")
BREAK = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "ditto.platform_cpu":
            raise RuntimeError("this plug-in is broken")
sys.meta_path.insert(0, Broken())
"""


def test_the_installed_entry_point_satisfies_it() -> None:
    require("cpu")
    assert get_platform().device_name == "cpu"


@pytest.mark.parametrize("installed", [[], [SimpleNamespace(name="other", value="other.plugin")]])
def test_without_the_entry_point_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, installed: list[Any]) -> None:
    asked = []
    monkeypatch.setattr(plugin, "entry_points", lambda group: asked.append(group) or installed)
    with pytest.raises(PluginMissing, match="verl.plugins.*bash scripts/env.*pip install"):
        require("cpu")
    assert asked == ["verl.plugins"]


def test_another_platform_than_the_config_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "entry_points", lambda group: [OWN])
    with pytest.raises(PluginMissing, match="trainer.device=cuda.*'cpu'.*platform=cpu.*VERL_PLATFORM=cpu"):
        require("cuda")


def without_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {name: cls for name, cls in PlatformRegistry._platforms.items() if name != "cpu"}
    monkeypatch.setattr(PlatformRegistry, "_platforms", others)


def test_a_plugin_that_verl_did_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    without_cpu(monkeypatch)
    with pytest.raises(PluginMissing, match="VERL_USE_EXTERNAL_PLUGINS"):
        require("cpu")


def test_the_error_that_verl_swallowed_gets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("this plug-in is broken")

    without_cpu(monkeypatch)
    monkeypatch.setattr(plugin, "register", broken)
    with pytest.raises(RuntimeError, match="this plug-in is broken"):
        require("cpu")


def test_verl_still_swallows_errors_of_plugins() -> None:
    """Why `require` is needed at all."""
    import inspect

    import verl

    text = inspect.getsource(verl)
    assert "VERL_USE_EXTERNAL_PLUGINS" in text
    assert '.debug("Failed to load plugin' in text


FIRST_USE = """
import verl
print("imported")
from verl.utils.device import get_device_name
for work in (get_device_name, lambda: __import__("ditto.plugin").plugin.require("cpu")):
    try:
        work()
        print("silence")
    except Exception as error:
        print(" ".join(f"{type(error).__name__}: {error}".split()))
"""


@pytest.mark.parametrize(
    ("plugins", "before", "said"),
    [
        pytest.param("auto", BREAK, "RuntimeError: this plug-in is broken", id="broken"),
        pytest.param("none", "", "PluginMissing: .*VERL_USE_EXTERNAL_PLUGINS", id="switched off"),
    ],
)
def test_a_plugin_that_was_not_loaded_is_heard_at_the_first_use(
    run_python: Callable[..., Any], plugins: str, before: str, said: str
) -> None:
    """`import verl` says nothing; the first question for the device fails, and so does `require` in the driver."""
    done = run_python(before + FIRST_USE, VERL_PLATFORM="cpu", VERL_USE_EXTERNAL_PLUGINS=plugins)
    imported, device, required = done.stdout.splitlines()
    assert imported == "imported"
    assert "ValueError: Unknown platform 'cpu'" in device
    assert re.match(said, required), required
