"""Check the temporary folders of a run before Ray, vLLM and torch put their sockets and files there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ditto.settings import BadConfig
from soul.files.writable import check_writable
from soul.mistakes import Mistakes

LONGEST_SOCKET = 107  # bytes of a path in the kernel's structure (unix(7)), without its last, empty byte
RAY_SOCKET = "session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"  # below Ray's folder
VLLM_SOCKET = "12345678-1234-1234-1234-123456789012"  # below the temporary folder


def check_temporary_folders(environment: Mapping[str, str], ray_folder: str | None, starts_ray: bool) -> None:
    """Check that the folders can be written to, and that the paths of sockets in them are short enough.

    Args:
        environment: the variables of this process.
        ray_folder: ray_kwargs.ray_init._temp_dir, which Ray uses instead of RAY_TMPDIR.
        starts_ray: whether the run starts Ray, so that Ray's folder is on this machine.

    Raises:
        BadConfig, NotWritable: the message names the variable.
    """
    found = Mistakes()
    for variable in ("TMPDIR", "RAY_TMPDIR"):
        if folder := environment.get(variable):
            with found.of():
                check_writable(folder, variable)
    with found.of():
        _check_length(environment.get("TMPDIR") or tempfile.gettempdir(), VLLM_SOCKET, "TMPDIR", "vLLM")
    if starts_ray:
        variable = "RAY_TMPDIR" if environment.get("RAY_TMPDIR") else "TMPDIR"
        above = environment.get(variable) or tempfile.gettempdir()
        setting = "ray_kwargs.ray_init._temp_dir" if ray_folder else variable
        with found.of():
            _check_length(ray_folder or os.path.join(above, "ray"), RAY_SOCKET, setting, "Ray")
    found.report()


def _check_length(folder: str, socket: str, setting: str, who: str) -> None:
    folder = os.path.abspath(folder)
    length = len(os.fsencode(Path(folder) / socket))
    if length > LONGEST_SOCKET:
        most = LONGEST_SOCKET - len(os.fsencode(socket)) - 1 - (len("/ray") if setting.endswith("TMPDIR") else 0)
        raise BadConfig(
            f"{setting}: {who}'s sockets below {folder} would have paths of {length} bytes, and the kernel allows "
            f"{LONGEST_SOCKET}. Use a folder whose path has at most {most} bytes, e.g. {setting}=/tmp."
        )
