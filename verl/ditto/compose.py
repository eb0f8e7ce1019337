"""Build the Hydra config: our files on top of verl's, and the words of the command line on top of both."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ditto.settings import BadConfig

CONFIG_DIR = Path(__file__).parent / "config"


def compose_config(directory: str, name: str, words: list[str]) -> DictConfig:
    """Compose a config; its interpolations are still to be resolved.

    Args:
        directory: where `<name>.yaml` lies; our folder and verl's are searched too.
        words: Hydra overrides.

    Raises:
        HydraException, ConfigCompositionException, OmegaConfBaseException: what Hydra says of a bad override.
    """
    search = [CONFIG_DIR, package_dir("verl") / "trainer" / "config"]
    paths = ",".join(f"file://{path}" for path in search)
    _register_resolvers()
    with initialize_config_dir(str(Path(directory).absolute()), version_base=None):
        config: DictConfig = compose(name, [*words, f"hydra.searchpath=[{paths}]"])
    return config


COMPOSITION_ERRORS = (HydraException, ConfigCompositionException, OmegaConfBaseException)


@cache
def default_config(platform: str) -> DictConfig:
    """The trainer's config without any override, unresolved. Do not change it: every caller gets the same one."""
    return compose_config(str(CONFIG_DIR), "trainer", [f"platform={platform}"])


def package_dir(name: str) -> Path:
    """Where a package lies; it is not imported (importing verl takes ten seconds)."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BadConfig(f"{name} is not installed in this environment: run bash scripts/env.")
    return Path(list(spec.submodule_search_locations)[0])


def _register_resolvers() -> None:
    """`${plus:1,2}` adds; `${installed:package,file}` is the path of a file that a package ships."""
    OmegaConf.register_new_resolver("plus", lambda *numbers: sum(map(int, numbers)), replace=True)
    OmegaConf.register_new_resolver("installed", lambda package, file: str(package_dir(package) / file), replace=True)
