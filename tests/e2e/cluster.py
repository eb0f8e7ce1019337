"""A Ray cluster of its own, started as people start one: `ray start`, in another folder, with another environment."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

# What the launcher exports, or gives to a run; nodes have nothing of it.
OF_A_RUN = ("VERL_", "OPENAI_", "JUDGE_", "HF_", "OMP_", "TOKENIZERS_", "PYTHONPATH", "OUTPUT_DIR", "RAY_ADDRESS")


class Cluster:
    """A context manager; nobody else can join, for nobody else has the token."""

    def __init__(self, cpus: int, environment: Mapping[str, str]) -> None:
        self.cpus = cpus
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path: sockets lie in it
        token = self.folder / "token"
        token.write_text(secrets.token_hex(32))
        # Of the nodes and of whoever joins.
        self.access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        plain = {name: value for name, value in os.environ.items() if not name.startswith(OF_A_RUN)}
        self._environment = {**plain, **environment, **self.access}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Cluster:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port=0"]
        command += [f"--temp-dir={self.folder / 'ray'}", "--node-ip-address=127.0.0.1", "--include-dashboard=false"]
        command += [f"--num-cpus={self.cpus}", "--num-gpus=1", "--disable-usage-stats"]
        with (self.folder / "log.txt").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 120
        while "Ray runtime started" not in (said := (self.folder / "log.txt").read_text(errors="replace")):
            assert self._process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    @property
    def address(self) -> str:
        return (self.folder / "ray" / "ray_current_cluster").read_text().strip()

    @property
    def session(self) -> Path:
        """Ray's logs and sockets."""
        return (self.folder / "ray" / "session_latest").resolve()

    def processes(self) -> list[psutil.Process]:
        """Ray's own and all workers."""
        assert self._process is not None
        try:
            head = psutil.Process(self._process.pid)
            return [head, *head.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> None:
        """By process id, as `ray stop` would stop everybody's."""
        assert self._process is not None
        processes = self.processes()
        for process in processes:
            try:
                process.terminate()
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(processes, 20)
        for process in alive:
            process.kill()
        self._process.wait(20)
