"""The CUDA wheels fit together: vLLM's kernels load against this torch."""

import importlib

import pytest

from tests.gpu_pins.conftest import vllm_folder


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
    """vLLM prefers FlashInfer's sampler, which needs nvcc, without asking for either: our plugin says no."""
    from vllm.plugins import load_plugins_by_group
    from vllm.v1.sample.ops.topk_topp_sampler import flashinfer_sampler_supported

    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    with pytest.raises(ImportError):
        flashinfer_sampler_supported()
    for plugin in load_plugins_by_group("vllm.general_plugins").values():
        plugin()
    assert not flashinfer_sampler_supported()


@pytest.mark.parametrize(
    "module",
    [
        "vllm.v1.worker.gpu_worker",
        "vllm.entrypoints.openai.api_server",
        "vllm.distributed.device_communicators.flashinfer_all_reduce",  # every engine with tensor parallelism
        "vllm.v1.attention.backends.flash_attn",
        "vllm.vllm_flash_attn.cute.interface",  # a B200's attention
        "vllm.multimodal.video",
        "vllm.model_executor.models.qwen3_vl",
        "vllm.model_executor.models.qwen3_moe",
        "vllm.lora.worker_manager",
        "verl.checkpoint_engine.nccl_checkpoint_engine",
        "pynvml",  # verl binds a worker to the cores beside its card, and goes on without where it is missing
    ],
)
def test_what_runs_on_a_card_imports_without_the_packages_that_we_leave_out(module: str, h100: None) -> None:
    importlib.import_module(module)


def test_the_kernels_that_a_gpu_calls_are_registered(h100: None) -> None:
    import torch
    import vllm._custom_ops  # noqa: F401
    from vllm.device_allocator.cumem import cumem_available

    assert torch.ops._C.rms_norm and torch.ops._C.silu_and_mul
    assert cumem_available, "sleep mode needs vLLM's allocator"
