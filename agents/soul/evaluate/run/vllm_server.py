"""vLLM's OpenAI server as a context manager: start it for one checkpoint, wait until it is ready, and always stop it.

It listens only on 127.0.0.1. Its processes are a process group and are stopped together. If this process is killed, the
kernel sends SIGTERM to the server (PR_SET_PDEATHSIG).
"""

import ctypes
import logging
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from soul.cli.redaction import without_secret_values
from soul.errors import SoulError
from soul.evaluate.run.checkpoint import Checkpoint
from soul.host_resources import THREAD_VARIABLES, free_memory

logger = logging.getLogger(__name__)

START_S = 3600.0  # a large model may have to be downloaded first
STOP_S = 30.0
POLL_S = 0.5
LOG = "server.log"  # in the run's folder
_PR_SET_PDEATHSIG = 1
# For requests to the server: a proxy (http_proxy) would look for 127.0.0.1 on its own machine.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

# vLLM's CPU build: all processes share the cores, no compilation that takes minutes. No chunked prefill: with it, a
# request with a seed crashes the engine (vLLM 0.28.0 resets torch's generator, which fails on a CPU).
CPU_ARGUMENTS = ("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill")
# One device's worker runs in the engine's process: one process less that imports torch and vLLM.
ONE_PROCESS = ("--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor")
CPU_VARIABLES = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCH_COMPILE_DISABLE": "1", "VERL_PLATFORM": "cpu"}
CPU_VARIABLES |= THREAD_VARIABLES
# Keys and values on a CPU, whose memory vLLM takes at once: more than 16 whole contexts do not run faster there, and
# half of the free memory is for weights, twice, and the server's processes. vLLM names the context that would fit.
_CACHED_SEQUENCES, _CACHE_SHARE = 16, 0.5
_SPARE_TOKENS = 256  # two blocks: a sequence gets whole ones, and vLLM keeps one for itself
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM supports


class ServerFailed(SoulError):
    """The server exited before it was ready, or was not ready in time."""


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server of checkpoints.

    Attributes:
        tensor_parallel, data_parallel: devices of one replica, and number of replicas.
        arguments: further arguments of `vllm serve`, which override all others.
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
            rank = next(size for size in _RANKS if size >= (checkpoint.lora_rank or 0))
            command += ["--enable-lora", "--max-lora-rank", str(rank)]
            command += ["--lora-modules", f"{checkpoint.name}={checkpoint.adapter}"]
        if self.tensor_parallel > 1:
            command += ["--tensor-parallel-size", str(self.tensor_parallel)]
        if self.data_parallel > 1:
            command += ["--data-parallel-size", str(self.data_parallel)]
        if self.platform == "cpu":
            command += [*CPU_ARGUMENTS, "--kv-cache-memory-bytes", str(_cache_bytes(checkpoint))]
            command += ONE_PROCESS if self.tensor_parallel == 1 else ()
        return [*command, *self.arguments]

    def environment(self, keys: Collection[str] = ()) -> Mapping[str, str]:
        """Our environment without OPENAI_* and these variables, which hold the keys of judges and agents."""
        kept = {name for name in os.environ if not name.startswith("OPENAI_")} - set(keys)
        inherited = {name: os.environ[name] for name in kept}
        return inherited | CPU_VARIABLES if self.platform == "cpu" else inherited


def _cache_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of the cache on a CPU; half of the free memory for a model that is not downloaded yet."""
    config = checkpoint.config
    heads = config.get("num_attention_heads") or 1
    width = config.get("head_dim") or config.get("hidden_size", 0) // heads
    kv_heads, layers = config.get("num_key_value_heads") or heads, config.get("num_hidden_layers") or 0
    token = 2 * layers * kv_heads * width * 4  # keys and values in float32, of all layers
    wanted = _CACHED_SEQUENCES * (checkpoint.context + _SPARE_TOKENS) * token
    free = int(_CACHE_SHARE * free_memory())
    return min(wanted, free) if wanted else free


def free_port() -> int:
    """An unused port of 127.0.0.1, below those that Linux gives to whoever asks for any: a server takes it later."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def serving(
    checkpoint: Checkpoint,
    settings: ServerSettings,
    port: int,
    log: Path,
    console: Console,
    keys: Collection[str] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a checkpoint for as long as the context is open.

    Args:
        log: the file for the server's output.
        keys: environment variables that the server does not get.

    Raises:
        ServerFailed: the message has the last lines of the log.
    """
    command = settings.command(checkpoint, port)
    if not Path(command[0]).exists():
        raise ServerFailed(
            f"{command[0]}: vLLM is not installed here. bash scripts/env makes an environment with it; or evaluate an "
            "endpoint: soul evaluate."
        )
    log.parent.mkdir(parents=True, exist_ok=True)
    logger.debug("starting %s", shlex.join(without_secret_values(command)))
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=settings.environment(keys),
            stdout=output,
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
    start, spent = time.monotonic(), 0.0
    with console.status(f"vLLM loads {checkpoint.name}; log: {log}"):
        while not _healthy(port):
            spent = time.monotonic() - start
            if process.poll() is not None or spent > START_S:
                ended = process.returncode is not None
                reason = f"exit code {process.returncode}" if ended else f"not ready after {spent:.0f} s"
                raise ServerFailed(f"vLLM does not serve {checkpoint.model} ({reason}). {log} ends with:\n{tail(log)}")
            time.sleep(POLL_S)
    console.print(f"vLLM serves {checkpoint.name} after {spent:.0f} s")


def _healthy(port: int) -> bool:
    with suppress(OSError), DIRECT.open(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server and all its processes; Ctrl-C in the meantime kills them at once."""
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:
        with suppress(ProcessLookupError):  # whatever is left of the group
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)


def tail(log: Path) -> str:
    """The last lines of a server's log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
