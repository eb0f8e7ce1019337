"""recipe/ditto/ray_node.py without Ray: the words of `ray start`, and a head that never answers.

tests/e2e/test_two_nodes.py runs it with Ray.
"""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("ray")

from recipe.ditto.ray_node import main, start_words
from soul.cli.error_border import FAILED


def test_the_first_node_starts_the_head_and_the_others_join_it() -> None:
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start"]
    assert start_words(0, "10.0.0.1:6379", ["--num-cpus=27"]) == [
        *(*ray, "--head", "--node-ip-address=10.0.0.1", "--port=6379", "--block", "--disable-usage-stats"),
        "--num-cpus=27",
    ]
    assert start_words(1, "10.0.0.1:6379") == [*ray, "--address=10.0.0.1:6379", "--block", "--disable-usage-stats"]


def test_a_head_that_never_answers_ends_the_other_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens on port 1."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    words = ["--rank", "1", "--nodes", "2", "--head", "127.0.0.1:1", "--ray=--num-cpus=1", "--limit-s", "0.1"]
    assert main([*words, "--", "true"]) == FAILED
    assert "NoCluster: Ray's head at 127.0.0.1:1 does not answer after 0.1 s (--limit-s)" in capsys.readouterr().err
