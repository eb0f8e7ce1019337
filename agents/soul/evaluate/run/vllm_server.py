"""vLLM's OpenAI server as a context: started for one checkpoint, waited for, and always stopped.

It listens on 127.0.0.1 only. Its processes are a group of their own and get the stop as one; should this process be
killed, the kernel sends the server its end (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from soul.errors import SoulError
from soul.evaluate.run.checkpoint import Checkpoint

START_S = 3600.0  # a large model may have to be downloaded first
STOP_S = 30.0
POLL_S = 0.5
_PR_SET_PDEATHSIG = 1

# vLLM's CPU build: all processes share the cores, nothing is compiled for minutes, the cache stays small. Prompts are
# taken whole: one taken in pieces ends the engine if its request has a seed (vLLM 0.28.0 wants to set back torch's
# generator, which cannot be done on a CPU).
CPU_ARGUMENTS = (
    *("--dtype", "float32", "--enforce-eager", "--kv-cache-memory-bytes", str(1 << 29)),
    "--no-enable-chunked-prefill",
)
CPU_VARIABLES = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCH_COMPILE_DISABLE": "1", "VERL_PLATFORM": "cpu"}
# FlashInfer's sampler is compiled by nvcc when the server starts; vLLM's own needs no compiler.
GPU_VARIABLES = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}


class ServerFailed(SoulError):
    """The server ended before it could be asked, or did not answer in time."""


@dataclass(frozen=True)
class ServerSettings:
    """How checkpoints are served.

    Attributes:
        tensor_parallel, data_parallel: devices of one replica, and replicas.
        arguments: further arguments of `vllm serve`; the last word on everything.
        platform: "gpu" or "cpu".
    """

    tensor_parallel: int = 1
    data_parallel: int = 1
    arguments: tuple[str, ...] = ()
    platform: str = "gpu"

    def command(self, checkpoint: Checkpoint, port: int) -> list[str]:
        """The command line that serves this checkpoint."""
        command = [str(Path(sys.executable).with_name("vllm")), "serve", checkpoint.model]
        command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(checkpoint.context)]
        if checkpoint.adapter is None:
            command += ["--served-model-name", checkpoint.name]
        else:
            command += ["--enable-lora", "--max-lora-rank", str(_lora_rank(checkpoint))]
            command += ["--lora-modules", f"{checkpoint.name}={checkpoint.adapter}"]
        if self.tensor_parallel > 1:
            command += ["--tensor-parallel-size", str(self.tensor_parallel)]
        if self.data_parallel > 1:
            command += ["--data-parallel-size", str(self.data_parallel)]
        return [*command, *(CPU_ARGUMENTS if self.platform == "cpu" else ()), *self.arguments]

    def environment(self) -> Mapping[str, str]:
        """The server's environment: ours, without the keys of judges and agents."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
        return ours | CPU_VARIABLES if self.platform == "cpu" else GPU_VARIABLES | ours


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(
    checkpoint: Checkpoint, settings: ServerSettings, port: int, log: Path, console: Console
) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a checkpoint for as long as the context is open.

    Args:
        log: where the server's own words go.

    Raises:
        ServerFailed: with the log's last lines.
    """
    command = settings.command(checkpoint, port)
    if not Path(command[0]).exists():
        raise ServerFailed(
            f"{command[0]}: vLLM is not installed here. Install ditto-soul[gpu] or [cpu], or evaluate an endpoint: "
            "soul evaluate."
        )
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as words:
        process = subprocess.Popen(
            command,
            env=settings.environment(),
            stdout=words,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    try:
        _wait(process, checkpoint, port, log, console)
        yield process
    finally:
        _stop(process)


def _end_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(process: subprocess.Popen[bytes], checkpoint: Checkpoint, port: int, log: Path, console: Console) -> None:
    start = time.monotonic()
    with console.status(f"vLLM loads {checkpoint.name}; its log: {log}") as status:
        while not _healthy(port):
            spent = time.monotonic() - start
            if process.poll() is not None or spent > START_S:
                ended = f"exit code {process.returncode}" if process.returncode is not None else f"{spent:.0f} s over"
                raise ServerFailed(f"vLLM does not serve {checkpoint.model} ({ended}). {log} ends with:\n{_tail(log)}")
            status.update(f"vLLM loads {checkpoint.name}, {spent:.0f} s; its log: {log}")
            time.sleep(POLL_S)
    console.print(f"vLLM serves {checkpoint.name} after {time.monotonic() - start:.0f} s")


def _healthy(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and everything that it started; a Ctrl-C meanwhile ends them at once."""
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:
        with suppress(ProcessLookupError):  # the server, or what outlived it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)


def _lora_rank(checkpoint: Checkpoint) -> int:
    """The smallest rank that vLLM is built for and the adapter fits in."""
    rank = checkpoint.lora_rank or 0
    return next(size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank)


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
