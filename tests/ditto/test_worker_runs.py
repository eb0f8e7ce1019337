"""Every objective through verl's TrainingWorker with FSDP2, against its formula: gradient norms, weights, teacher.

Ours: a step of two updates (or one) in float32, on one rank and on two, all weights trained or a LoRA adapter
(`worker_runs.py`). Theirs: the same updates in float64, from the formulas of tests/ditto/objectives and AdamW's
equations. Rows arrive in some order and are sorted by the trainer.

The second update is off-policy, and SDPO's moving teacher is then 0.5 start + 0.5 live. The experts of on-policy
distillation are loaded from their checkpoints, one of them wider than the student. Tolerances: the engine computes
in float32 (unit round-off 6e-8), and a weight of size 1 that moves by about 1e-2 is stored to 1e-7, so its movement is
known to about 1e-5: 1e-4 for the movement and 1e-5 for the gradient norm leave room. AdamW's epsilon is 1, because with
1e-8 the first step is the gradient's sign, which float32 does not know near 0.
"""

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from ditto.objectives import OBJECTIVES
from tests.ditto import worker_runs
from tests.ditto.objectives import test_formulas, test_on_policy_distillation, test_sdpo
from tests.ditto.our_step import ACTOR, settings_of, step_data
from tests.ditto.tiny_objectives import FORMULAS, MODE, OPTIONS, SDPO, Mini, Model, new_model
from tests.ditto.tiny_step import Sequence_, mini_batches, old_log_probs, perturbed

BETAS, EPS = (0.9, 0.999), 1.0
WORLD_SIZES = [1, pytest.param(2, marks=pytest.mark.e2e)]


@dataclass(frozen=True)
class Run:
    """One step of a worker.

    Attributes:
        adapter: the LoRA adapter that is trained, of rank 4 with two random factors; None: all weights.
        prompts: of a mini-batch, of the five of the step.
        arrival: shuffles the rows before the trainer sorts them.
        sort_seed: permutes the prompts.
        resumes: between its two updates it is saved, and another worker continues; parameters are offloaded.
        tree: groups are computed as trees, and rows are balanced over ranks by the trees' cost.
    """

    objective: str
    adapter: Literal["random"] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    prompts: int = 3
    micro_batch_tokens: int = 150  # several micro-batches
    arrival: int = 0
    sort_seed: str = "7:1"
    resumes: bool = False
    tree: bool = False
    weight_decay: float = 0.01
    clip_grad: float = 0.5

    @property
    def teacher(self) -> str | None:
        """Whose weights SDPO's teacher has; None for an objective without it."""
        feedback = OBJECTIVES[self.objective].teacher == "feedback"
        return self.options["sdpo"].get("teacher", "ema") if feedback else None


FULL = {name: Run(name, options=OPTIONS.get(name, {})) for name in OBJECTIVES}
LORA = {f"{name}, LoRA": replace(run, adapter="random") for name, run in FULL.items()}
TEACHERS = {
    f"{name} of {kind} weights, LoRA": replace(
        LORA[f"{name}, LoRA"], options={"sdpo": OPTIONS[name]["sdpo"] | {"teacher": kind}}
    )
    for name, kind in (("sdpo_token", "base"), ("sdpo_logits", "live"))
}
# The same step, computed another way.
SAME: dict[str, tuple[str, Run]] = {
    f"{name}, {how}": (name, replace((FULL | LORA)[name], **changes))
    for name, how, changes in (
        ("ditto", "in another order of arrival", {"arrival": 1}),
        ("sdpo_logits, LoRA", "in one micro-batch", {"micro_batch_tokens": 1 << 20}),
        *((name, "resumed", {"resumes": True}) for name in ("ditto", "sdpo_logits, LoRA")),
        ("ditto", "as trees", {"tree": True}),
        ("ditto, LoRA", "as trees in one micro-batch", {"tree": True, "micro_batch_tokens": 1 << 20}),
    )
}
ONE_UPDATE = {f"{name}, one update": replace(FULL[name], prompts=5) for name in ("ditto", "sdpo_logits_grpo")}
SAME |= {
    f"{name}, other prompts first": (name, replace(run, sort_seed="8:1", arrival=2)) for name, run in ONE_UPDATE.items()
}
RUNS = FULL | LORA | TEACHERS | {name: run for name, (_, run) in SAME.items()} | ONE_UPDATE


# ---- theirs -----------------------------------------------------------------------------------------------------


@dataclass
class Expected:
    norms: list[float]
    start: dict[str, Tensor]
    model: Model
    teacher: Model


def rows_of(run: Run) -> tuple[list[Sequence_], list[list[float]], list[tuple[int, ...]]]:
    """The rows that the objective trains in the order of their arrival, with old log-probs and teacher's prompts."""
    rows = test_formulas.rows_of(OBJECTIVES[run.objective].kinds)
    old = old_log_probs(new_model(run.adapter), rows, perturbed)
    taught = test_sdpo.feedback_prompts(rows) if run.teacher else [()] * len(rows)
    order = list(range(len(rows)))
    if run.arrival:
        random.Random(run.arrival).shuffle(order)
    return [rows[i] for i in order], [old[i] for i in order], [taught[i] for i in order]


def adamw(run: Run, weights: dict[str, Tensor], state: dict[str, Any], t: int) -> float:
    """Gradient clipping and one AdamW update in float64, in place; returns the norm before clipping."""
    gradients = {name: weight.grad for name, weight in weights.items()}
    norm = sum(float((g**2).sum()) for g in gradients.values() if g is not None) ** 0.5
    scale = min(1.0, run.clip_grad / (norm + 1e-6))
    for name, weight in weights.items():
        gradient = gradients[name]
        assert gradient is not None
        g = gradient * scale
        m, v = state.get(name, (torch.zeros_like(g), torch.zeros_like(g)))
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g**2
        state[name] = m, v
        step = (m / (1 - BETAS[0] ** t)) / ((v / (1 - BETAS[1] ** t)).sqrt() + EPS)
        weight.mul_(1 - LR * run.weight_decay).sub_(LR * step)
    return norm


@cache
def expected(name: str) -> Expected:
    """The run by the formulas."""
    run = RUNS[name]
    rows, old, taught = rows_of(run)
    prompts = sorted({row.prompt for row in rows})
    random.Random(run.sort_seed).shuffle(prompts)  # which prompts share a mini-batch
    order = sorted(range(len(rows)), key=lambda i: prompts.index(rows[i].prompt))
    model = new_model(run.adapter)
    trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
    start = {key: p.detach().clone() for key, p in trained.items()}
    teacher = model if run.teacher == "live" else copy.deepcopy(model)
    norms: list[float] = []
    state: dict[str, Any] = {}
    for t, members in enumerate(mini_batches([rows[i] for i in order], run.prompts), start=1):
        chosen = [order[m] for m in members]
        batch = Mini(*([values[i] for i in chosen] for values in (rows, old, taught)))
        model.zero_grad()
        FORMULAS[run.objective](model, teacher, batch).backward()
        with torch.no_grad():
            norms.append(adamw(run, trained, state, t))
            if run.teacher == "ema":
                for mean, live in zip(teacher.parameters(), model.parameters(), strict=True):
                    mean.lerp_(live, SDPO["teacher_rate"])
    return Expected(norms, start, model, teacher)


# ---- ours -------------------------------------------------------------------------------------------------------

LR = 0.5
Results = Callable[[int], dict[str, Any]]
Folders = Callable[[int], Path]
RESUMED = [name for name, run in RUNS.items() if run.resumes]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folders of all runs, by the number of ranks."""

    @cache
    def of_world_size(world_size: int) -> Path:
        folder = tmp_path_factory.mktemp(f"ranks_{world_size}")
        run_all(folder, world_size, list(RUNS))
        return folder

    return of_world_size


@pytest.fixture(scope="module")
def results(folders: Folders) -> Results:
    """The results of all runs, by the number of ranks."""
    return cache(lambda world_size: results_in(folders(world_size)))


@pytest.fixture(scope="module")
def moved(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """Results of the second updates: 2 ranks continue from the checkpoint of 1, and 1 rank from what those 2 saved."""
    two, one = tmp_path_factory.mktemp("from_1_to_2"), tmp_path_factory.mktemp("from_2_to_1")
    run_all(two, 2, RESUMED, resumes_from=folders(1))
    run_all(one, 1, RESUMED, resumes_from=two)
    return {2: results_in(two), 1: results_in(one)}


def results_in(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(folder / "results.pt", weights_only=True)
    return content


def run_all(folder: Path, world_size: int, names: list[str], resumes_from: Path | None = None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        write_jobs(folder, world_size, names, resumes_from, patch)
        run_workers(folder, world_size, patch)


def write_jobs(
    folder: Path, world_size: int, names: list[str], resumes_from: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write what `worker_runs.py` reads."""
    new_model(None).float().save_pretrained(folder / "model")  # type: ignore[operator]
    new_model("random", folder / "random")
    for number, expert in enumerate(test_on_policy_distillation.experts(), start=1):
        expert.float().save_pretrained(folder / f"expert_{number}")  # type: ignore[operator]
    jobs = []
    for name in names:
        run = RUNS[name]
        rows, old, taught = rows_of(run)
        settings = settings_of(run.objective, **run.options)
        step, data = step_data(
            rows,
            old,
            settings,
            MODE,
            world_size,
            monkeypatch,
            teacher_prompts=taught,
            tasks=[test_on_policy_distillation.TASK_OF[row.prompt] for row in rows],
            prompts_per_mini_batch=run.prompts,
            sort_seed=run.sort_seed,
            as_trees=run.tree,
        )
        assert step.layout is not None
        columns = {key: list(value.unbind()) for key, value in data.items()}
        columns["old_log_probs"] = [row.float() for row in columns["old_log_probs"]]
        torch.save(columns, folder / f"{name}.pt")
        optimizer = {"lr": LR, "betas": BETAS, "eps": EPS}
        jobs.append(
            {
                "name": name,
                "adapter": run.adapter,
                "rows": step.layout.rows,
                "actor": ACTOR,
                "objective": run.objective,
                "options": settings.options.model_dump(),
                "distillation": settings.distillation,
                "teachers": settings.expert_teachers,
                "optimizer": optimizer | {"weight_decay": run.weight_decay, "clip_grad": run.clip_grad},
                "micro_batch_tokens": run.micro_batch_tokens,
                "resumes": run.resumes,
                "resumes_from": str(resumes_from / f"{name} checkpoint") if resumes_from else None,
                "tree": run.tree,
            }
        )
    (folder / "jobs.json").write_text(json.dumps(jobs))


def run_workers(folder: Path, world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank runs in this process, which saves importing verl once more; two run in processes of their own."""
    rendezvous = worker_runs.rendezvous(world_size)
    if world_size == 1:
        for name, value in rendezvous.items():
            monkeypatch.setenv(name, value)
        worker_runs.main(folder)
        return
    logs = [folder / f"rank_{rank}.log" for rank in range(world_size)]
    processes = []
    for rank, log in enumerate(logs):
        with log.open("w") as out:  # not a pipe: a rank blocks where its pipe is full, and the others wait for it
            command = [sys.executable, worker_runs.__file__, str(folder)]
            environment = {**os.environ, **rendezvous, "RANK": str(rank)}
            processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT))
    try:
        codes = [process.wait(timeout=500) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0] * world_size, "\n".join(log.read_text()[-3000:] for log in logs)


def relative_error(value: Tensor, reference: Tensor) -> float:
    return ((value - reference).norm() / reference.norm()).item()


# ---- tests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_equals_the_formula(name: str, world_size: int, results: Results) -> None:
    ours, theirs = results(world_size)[name], expected(name)
    assert len(theirs.norms) == (1 if RUNS[name].prompts == 5 else 2)
    assert ours["grad_norm"] == pytest.approx(theirs.norms, rel=1e-5)
    weights = dict(theirs.model.named_parameters())
    errors = {
        key: relative_error(ours["weights"][key].double() - start, weights[key].detach() - start)
        for key, start in theirs.start.items()
        if not torch.equal(weights[key], start)
    }
    assert max(errors.values()) < 1e-4, errors
    if RUNS[name].adapter:
        frozen = {key: weight for key, weight in weights.items() if not weight.requires_grad}
        assert all(torch.equal(ours["weights"][key].double(), weight) for key, weight in frozen.items())


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run.teacher])
def test_the_teacher_is_a_copy_of_what_is_trained(name: str, world_size: int, results: Results) -> None:
    """The moving average or the start; with LoRA of the adapter alone, and live weights need no copy."""
    copies, theirs = results(world_size)[name]["teacher"], expected(name)
    kind = RUNS[name].teacher
    if kind == "live":
        assert not copies
        return
    assert copies.keys() == theirs.start.keys()
    assert not RUNS[name].adapter or all("lora_" in key for key in copies)
    teacher = dict(theirs.teacher.named_parameters())
    for key, start in theirs.start.items():
        movement = teacher[key].detach() - start
        assert (copies[key].double() - start - movement).norm() <= 1e-4 * movement.norm(), key
    moved = [key for key, start in theirs.start.items() if not torch.equal(copies[key].double(), start)]
    assert bool(moved) == (kind == "ema")


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("name", SAME)
def test_what_is_computed_does_not_depend_on(name: str, world_size: int, results: Results) -> None:
    """Micro-batches, trees, the order of arrival, the prompts' order in one update, and a resume in the middle."""
    other = SAME[name][0]
    ours, reference = results(world_size)[name], results(world_size)[other]
    assert ours["grad_norm"] == pytest.approx(reference["grad_norm"], rel=1e-5)
    for key, start in expected(other).start.items():
        moved, as_before = (run["weights"][key].double() - start for run in (ours, reference))
        assert relative_error(moved, as_before) < 1e-4, key


@pytest.mark.e2e
@pytest.mark.parametrize("world_size", [2, 1])
@pytest.mark.parametrize("name", RESUMED)
def test_a_run_goes_on_with_another_number_of_ranks(
    name: str, world_size: int, moved: dict[int, dict[str, Any]]
) -> None:
    """The second update is by the formula: weights, moments, rate and teacher came from the other ranks' files."""
    ours, theirs = moved[world_size][name], expected(name)
    assert ours["grad_norm"] == pytest.approx(theirs.norms[1:], rel=1e-5)
    for models, values in ((theirs.model, ours["weights"]), (theirs.teacher, ours["teacher"])):
        weights = dict(models.named_parameters())
        for key, start in theirs.start.items() if values else ():
            movement = weights[key].detach() - start
            assert (values[key].double() - start - movement).norm() <= 1e-4 * movement.norm(), key
    assert bool(ours["teacher"]) == (RUNS[name].teacher is not None)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("name", LORA)
def test_the_sampler_gets_the_merged_weights(name: str, world_size: int, results: Results) -> None:
    """Base and adapter after two updates, rounded to bfloat16: 8 bits, so 2**-8 of the value at most."""
    merged = results(world_size)[name]["merged"]
    model: Any = copy.deepcopy(expected(name).model)
    theirs = dict(model.merge_and_unload().named_parameters())
    before: Any = new_model("random")
    start = dict(before.merge_and_unload().named_parameters())
    assert merged.keys() == theirs.keys()
    for key, weight in theirs.items():
        assert torch.all((merged[key].double() - weight).abs() <= 2**-8 * weight.abs() + 1e-6), key
    moved = [key for key in theirs if (theirs[key] - start[key]).norm() > 4 * (merged[key] - theirs[key]).norm()]
    assert len(moved) > 7
