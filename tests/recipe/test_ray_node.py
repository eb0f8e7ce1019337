"""recipe/ditto/ray_node.py without Ray: the words of `ray start`, and what is refused.

tests/e2e/test_two_nodes.py runs it with Ray.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

pytest.importorskip("ray")

from recipe.ditto.ray_node import Node, main
from soul.cli.error_border import FAILED


def test_the_first_node_starts_the_head_and_the_others_join_it() -> None:
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start"]
    words = Node(0, 2, "10.0.0.1:6379", ("--num-cpus=27",)).start_words()
    assert words == [
        *(*ray, "--head", "--node-ip-address=10.0.0.1", "--port=6379", "--block", "--disable-usage-stats"),
        "--num-cpus=27",
    ]
    words = Node(1, 2, "10.0.0.1:6379").start_words()
    assert words == [*ray, "--address=10.0.0.1:6379", "--block", "--disable-usage-stats"]


@pytest.mark.parametrize(
    ("rank", "head", "message"),
    [("2", "host:6379", "2 nodes have the numbers from 0 to 1"), ("0", "host", "write HOST:PORT")],
)
def test_words_that_cannot_be_are_refused(
    rank: str, head: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rank", rank, "--nodes", "2", "--head", head, "--", "true"])
    assert message in capsys.readouterr().err


def test_a_head_that_never_answers_ends_the_other_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens on port 1."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    words: Sequence[str] = ["--rank", "1", "--nodes", "2", "--head", "127.0.0.1:1", "--ray=--num-cpus=1"]
    assert main([*words, "--limit-s", "0.1", "--", "true"]) == FAILED
    assert "NoCluster: Ray's head at 127.0.0.1:1 does not answer after 0.1 s (--limit-s)" in capsys.readouterr().err
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
