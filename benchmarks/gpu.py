"""Measure our attention, our head and a whole update on one GPU. Needs only torch, transformers and peft.

    PYTHONPATH=verl python -m benchmarks.gpu [--parts attention head training] [--out benchmarks/baselines]

    attention   forward and backward over packs against a float32 reference (benchmarks/gpu_attention.py)
    head        chunked log-probs and entropy against full logits: errors, peak memory, time (benchmarks/gpu_head.py)
    training    update and log-prob pass of Qwen3-0.6B and 8B with LoRA over 16k and 64k packed tokens: tokens/s,
                MFU, peak memory beside the plan's (benchmarks/gpu_training.py)

The numbers go to `<out>/<device>.json`. Goals on an H100 or H200: MFU of the update at least 25 % at 16k tokens and
40 % at 64k; errors of bfloat16 attention no larger than those of sdpa; peak memory within 10 % of the plan. Without a
GPU everything runs at toy sizes, which shows that the script works, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks import gpu_attention, gpu_head, gpu_training

PARTS = {"attention": gpu_attention.measure, "head": gpu_head.measure, "training": gpu_training.measure}


def measure(device: str, parts: Sequence[str]) -> dict[str, Any]:
    """Measure these parts on one device."""
    on_gpu = device == "cuda"
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "memory_gib": torch.cuda.get_device_properties(0).total_memory / 2**30 if on_gpu else None,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    for name in parts:
        print(f"measuring {name} ...", flush=True)
        results[name] = PARTS[name](device)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(  # not soul's, which a bare machine lacks
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "baselines")
    args = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = measure(device, args.parts)
    text = json.dumps(results, indent=1)
    print(text)
    if device == "cpu":
        print("No GPU: these are toy sizes, and nothing is written.")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / (re.sub(r"[^a-z0-9]+", "-", results["device"].lower()).strip("-") + ".json")
    file.write_text(text + "\n", encoding="utf-8")
    print(f"written: {file}")


if __name__ == "__main__":
    sys.exit(main())
