"""Ray's private names: all in one module. Its store is tested by the runs that a signal stops."""

import re
from pathlib import Path

from ditto.run import ray_private

ROOT = Path(__file__).resolve().parents[3]


def test_no_other_file_uses_rays_private_names() -> None:
    files = [path for folder in ("agents", "verl", "sft", "data", "recipe") for path in (ROOT / folder).rglob("*.py")]
    private = re.compile(r"\bray\._|internal_kv")
    assert [path.name for path in files if private.search(path.read_text())] == ["ray_private.py"]


def test_addresses_and_tokens() -> None:
    assert ray_private.cluster_address("192.0.2.9:6399", None) == "192.0.2.9:6399"
    assert ray_private.cluster_address("local", None) is None
    assert ray_private.uses_token() in (True, False)
