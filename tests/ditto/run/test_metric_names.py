"""docs/metrics.md names every metric that a run writes.

Two sources of names: the texts in the code that look like a metric, and metrics that are computed from sessions here.
The end-to-end tests compare the metrics of whole runs.
"""

import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ditto.batch import metrics as batch_metrics
from ditto.run.step_metrics import session_metrics
from tests.ditto.run.test_step_metrics import record_of, session
from tests.metric_names import ROOT, undocumented

NOT_WRITTEN = {"actor/mfu"}  # verl's name, which the trainer replaces by perf/mfu/actor
OURS = ("actor", "ditto", "judge", "perf", "session_s", "timing_s", "train", "training", "val", "val-core")


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text of a module; a value inside of an f-string is written <value>."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "<value>" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def loss_metrics(tree: ast.AST) -> Iterator[str]:
    """The names without a slash that are assigned as `metrics["..."]`: verl writes them below actor/."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "metrics":
            if isinstance(node.slice, ast.Constant) and "/" not in str(node.slice.value):
                yield str(node.slice.value)


def names_in(file: Path) -> list[str]:
    """The texts of a module that have a metric's form."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [*texts(tree), *(f"actor/{name}" for name in loss_metrics(tree))]
    return [text for text in found if re.fullmatch(rf"(?:{'|'.join(OURS)})/[\w<>/@-]+[\w>]", text)]


def test_the_page_names_every_metric_in_the_code() -> None:
    files = [*(ROOT / "verl/ditto").rglob("*.py"), *(ROOT / "sft").rglob("*.py")]
    written = {name for file in files for name in names_in(file)}
    assert {
        "ditto/context_logprob_gap",
        "judge/failure_share",
        "val/loss",
        "ditto/task/<value>",
        "actor/part/<value>/<value>",
    } <= written
    assert not undocumented(written - NOT_WRITTEN)


def test_the_page_names_every_metric_of_sessions() -> None:
    chance = random.Random(7)
    written = session_metrics([record_of(session(chance)) for _ in range(200)])
    assert len(written) > 80
    assert not undocumented(written)


def test_the_page_names_verls_metrics_of_a_step() -> None:
    values = torch.nested.nested_tensor([torch.tensor([0.5, 0.25]), torch.tensor([-0.5])], layout=torch.jagged)
    mask = torch.nested.nested_tensor([torch.tensor([1, 1]), torch.tensor([1])], layout=torch.jagged)
    lengths = {"prompt_len": 4, "response_len": 2, "seq_len": 6, "min_global_steps": 1, "max_global_steps": 1}
    records: Any = [SimpleNamespace(reward=1.0, turns=2), SimpleNamespace(reward=0.0, turns=2)]
    timing = dict.fromkeys(("step", "gen", "old_log_prob", "ref", "adv", "update_actor", "update_weights"), 1.0)
    written = batch_metrics.of_verl([lengths] * 2, records, values, mask, timing, 1)
    written |= batch_metrics.staleness([lengths] * 2, 2)
    assert "critic/rewards/mean" in written and "training/off_policy/trajectory_spans/max" in written
    assert not undocumented(written)
