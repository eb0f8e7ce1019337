"""A temporary folder in which a run would die is named before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ditto.launching.variables import check_temporary_folders
from soul.errors import SoulError


def refusal(ray_folder: str | None = None, starts_ray: bool = True, **environment: str) -> str:
    with pytest.raises(SoulError) as refused:
        check_temporary_folders(environment, ray_folder, starts_ray)
    return str(refused.value)


def folder_of(length: int) -> str:
    return "/tmp/" + "x" * (length - len("/tmp/"))  # noqa: S108 - only the length is read


def test_usual_folders() -> None:
    check_temporary_folders({}, None, True)
    check_temporary_folders({"TMPDIR": folder_of(39)}, None, True)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for variable in ("TMPDIR", "RAY_TMPDIR"):
        assert f"{variable}={tmp_path}/file" in refusal(starts_ray=False, **{variable: f"{tmp_path}/file"})


@pytest.mark.parametrize(
    ("length", "variable", "ray_folder"), [(40, "TMPDIR", None), (40, "RAY_TMPDIR", None), (44, "_temp_dir", "given")]
)
def test_a_path_of_rays_sockets_that_is_too_long(length: int, variable: str, ray_folder: str | None) -> None:
    given = {} if ray_folder else {variable: folder_of(length)}
    text = refusal(folder_of(length) if ray_folder else None, **given)
    assert variable in text and "would have paths of 108 bytes" in text and f"at most {length - 1} bytes" in text


def test_a_running_cluster_has_its_own_folder_but_vllm_is_here() -> None:
    check_temporary_folders({"TMPDIR": folder_of(70)}, None, False)
    assert "vLLM's sockets" in refusal(starts_ray=False, TMPDIR=folder_of(71))
