"""`python -m recipe.demo.ablations [hydra overrides...]`: the recipe's ablation in the demo's world, on a CPU.

`bash recipe/ditto/ablations.sh demo` starts it. The warm start is made once; the judge is the demo's offline stand-in
unless OPENAI_BASE_URL and OPENAI_API_KEY name another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging as hf_logging

from ditto.launching.variables import says_yes
from recipe.demo import warm_start
from recipe.demo.forms import HITOM
from recipe.demo.run import ON_A_CPU, ROOT, demo_parser, judge, stage
from recipe.demo.stories import HARDLY_EVER_RIGHT
from recipe.ditto.ablations import Plan, run_plan
from soul.cli.error_border import reports_errors

CONFIG = ROOT / "recipe" / "demo" / "demo.yaml"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the world once, then train and draw as the recipe does."""
    overrides = demo_parser("python -m recipe.demo.ablations", __doc__).parse_args(arguments).overrides
    os.environ.setdefault("EXPERIMENT_NAME", "ablations-demo")
    folder = Path(os.environ.get("OUTPUT_DIR") or "outputs").absolute() / os.environ["EXPERIMENT_NAME"]
    world = folder / "world"
    world.mkdir(parents=True, exist_ok=True)
    os.environ |= ON_A_CPU | {
        "OUTPUT_DIR": str(folder.parent),
        "TRAIN_FILES": f"'{world / 'train.parquet'}'",
        "VAL_FILES": f"'{world / 'heldback.parquet'}'",
        "ACTOR_MODEL_PATH": str(world / "warm"),
        "PLATFORM": "cpu",
    }
    plan = Plan.from_environment(HITOM.task.name, overrides, os.environ, CONFIG)
    hf_logging.disable_progress_bar()
    if not (world / "warm" / "tokenizer_config.json").exists():  # written last
        with stage("Stories, a tiny Qwen3 model, and its warm start"):
            warm_start.prepare(world, warm_start.WarmStart(), population=HARDLY_EVER_RIGHT)
    with judge() as endpoint:
        os.environ |= endpoint
        return run_plan(plan, dry_run=says_yes("DRY_RUN", os.environ))


if __name__ == "__main__":
    sys.exit(main())
