"""A missing plug-in or a wrong platform is a loud error with its remedy, never a run that trains something else.

verl swallows errors of plug-ins at debug level; `plugin.require` and VERL_PLATFORM are what makes them heard.
"""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from verl.plugin.platform import PlatformRegistry, get_platform

from ditto.verl_hooks import plugin
from ditto.verl_hooks.plugin import PluginMissing, require

OWN = SimpleNamespace(name="ditto", value="ditto.verl_hooks.plugin")
# Both children start from one import of what verl needs: that is most of the time `import verl` takes.
CHILDREN = """
import json, os, sys
import ray, tensordict, torch, transformers

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "ditto.verl_hooks.platform_cpu":
            raise RuntimeError("this plug-in is broken")

def first_use():
    import verl
    yield "imported"
    from verl.utils.device import get_device_name
    from importlib import import_module
    for work in (get_device_name, lambda: import_module("ditto.verl_hooks.plugin").require("cpu")):
        try:
            work()
            yield "silence"
        except Exception as error:
            yield " ".join(f"{type(error).__name__}: {error}".split())

for name in ("broken", "switched off"):
    sys.stdout.flush()
    if os.fork() == 0:
        if name == "broken":
            sys.meta_path.insert(0, Broken())
        else:
            os.environ["VERL_USE_EXTERNAL_PLUGINS"] = "none"
        print(json.dumps({name: list(first_use())}), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def first_use() -> dict[str, list[str]]:
    """What a process says whose plug-in is broken or switched off: at `import verl`, at its first use, at `require`."""
    env = {**os.environ, "VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_PLUGINS": "auto"}
    done = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, timeout=240, env=env)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    assert found.keys() == {"broken", "switched off"}, done.stderr
    return found


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


@pytest.mark.parametrize("name", ["broken", "switched off"])
def test_a_plugin_that_was_not_loaded_is_heard_at_the_first_use_of_verl(
    first_use: dict[str, list[str]], name: str
) -> None:
    """`import verl` says nothing; the first question for the device, which every worker asks, fails."""
    imported, device, _ = first_use[name]
    assert imported == "imported"
    assert "ValueError: Unknown platform 'cpu'" in device


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "RuntimeError: this plug-in is broken"),
        ("switched off", "PluginMissing: .*VERL_USE_EXTERNAL_PLUGINS"),
    ],
)
def test_a_plugin_that_was_not_loaded_is_heard_by_require(
    first_use: dict[str, list[str]], name: str, said: str
) -> None:
    assert re.match(said, first_use[name][2]), first_use[name][2]
