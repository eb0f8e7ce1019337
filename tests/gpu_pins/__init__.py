"""What can be known of the GPU set (requirements/gpu.txt) without a GPU; `bash scripts/test --gpu-pins` runs it.

The kernels load, and vLLM takes the arguments that verl builds from each recipe, on a card that only says what an H100
says.
Left out, for want of a device: kernels that run, CUDA graphs, NCCL, sleep and wake-up, weights sent through CUDA IPC.
"""
