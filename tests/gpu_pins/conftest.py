"""A CUDA driver that answers "no device", and a card that says what an H100 says: enough for vLLM to plan for a GPU."""

import ctypes
import os
import re
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

# `scripts/test --gpu-pins` leaves the variable empty: vLLM takes that as "a card may come later" and keeps its Triton
# code, as it does where a card is. In any other run these tests have nothing to say.
if "+cpu" in version("torch") or os.environ.get("CUDA_VISIBLE_DEVICES") != "":
    collect_ignore_glob = ["test_*.py"]

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def vllm_folder() -> Path:
    """Where vLLM lies; it is not imported."""
    spec = find_spec("vllm")
    assert spec is not None and spec.submodule_search_locations
    return Path(list(spec.submodule_search_locations)[0])


def _driver_loads() -> bool:
    """Load the machine's own driver, if there is one."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def cuda_driver(tmp_path_factory: pytest.TempPathFactory) -> None:
    """libcuda.so.1, which comes with a card's driver: the machine's own, or one that answers "no device" to all."""
    if _driver_loads():
        return
    libraries = [str(path) for path in vllm_folder().rglob("*.so")]
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", *libraries], capture_output=True, text=True, check=True
    ).stdout
    names = sorted(set(re.findall(r" U (cu[A-Z]\w*)", symbols)))
    assert "cuMemCreate" in names, "vLLM's libraries ask nothing of the driver: nm was misread"
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names))
    library = folder / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(folder / "driver.c")]
    subprocess.run(command, check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)  # the loader finds it by its soname from here on


@pytest.fixture(scope="session")
def h100(cuda_driver: None) -> None:
    """vLLM plans for a node of eight H100."""
    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class H100(NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "NVIDIA H100 80GB HBM3"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return 80 << 30

        @classmethod
        def device_count(cls) -> int:
            return 8

    vllm.platforms.current_platform = H100()
