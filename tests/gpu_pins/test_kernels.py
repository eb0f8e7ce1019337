"""The CUDA wheels fit together: vLLM's kernels load against this torch."""

import importlib
from pathlib import Path

import pytest

from soul.evaluate.run.vllm_server import ServerSettings
from tests.gpu_pins.conftest import vllm_folder
from tests.gpu_pins.test_arguments import compose


def test_torch_is_built_for_cuda_13_and_for_the_cards_we_name() -> None:
    import torch

    assert torch.version.cuda and torch.version.cuda.startswith("13.")
    assert {"sm_80", "sm_90", "sm_100"} <= set(torch._C._cuda_getArchFlags().split())


@pytest.mark.parametrize("package, least", [("vllm", 6), ("vllm.vllm_flash_attn", 2)])
def test_vllms_libraries_load_against_this_torch(package: str, least: int, cuda_driver: None) -> None:
    import torch  # noqa: F401  (its libraries must be there first)

    folder = vllm_folder().joinpath(*package.split(".")[1:])
    names = sorted(path.name.partition(".")[0] for path in folder.glob("*.abi3.so"))
    assert len(names) >= least
    for name in names:
        importlib.import_module(f"{package}.{name}")


def test_sampling_needs_no_cuda_compiler(h100: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM prefers FlashInfer's sampler without asking for nvcc, which compiles it: both ways to a server say no."""
    from vllm.v1.sample.ops.topk_topp_sampler import flashinfer_sampler_supported

    assert flashinfer_sampler_supported(), "vLLM no longer prefers it: the setting can go"
    training = compose("ditto", Path("somewhere")).ray_kwargs.ray_init.runtime_env.env_vars
    for variables in (training, ServerSettings(platform="gpu").environment()):
        monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", variables["VLLM_USE_FLASHINFER_SAMPLER"])
        assert not flashinfer_sampler_supported()
        monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER")


def test_the_kernels_that_a_gpu_calls_are_registered(h100: None) -> None:
    import torch
    import vllm._custom_ops  # noqa: F401
    from vllm.device_allocator.cumem import cumem_available

    assert torch.ops._C.rms_norm and torch.ops._C.silu_and_mul
    assert cumem_available, "sleep mode needs vLLM's allocator"
