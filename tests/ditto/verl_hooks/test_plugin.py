"""A missing plug-in or a wrong platform is a loud error with its remedy, never a run that trains something else.

verl swallows errors of plug-ins at debug level; `plugin.require` and VERL_PLATFORM are what makes them heard.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from verl.plugin.platform import get_platform

from ditto.verl_hooks import plugin
from ditto.verl_hooks.plugin import PluginMissing, require

OWN = SimpleNamespace(name="ditto", value="ditto.verl_hooks.plugin")


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
