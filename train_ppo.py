"""Train with GRPO, DITTO or another objective: a thin Hydra entry point over verl's V1 trainer.

    python train_ppo.py data.train_files=[a.parquet] data.val_files=[b.parquet] actor_rollout_ref.model.path=MODEL
    python train_ppo.py ... +dry_run=true        # check everything, print the plan, start nothing

run_rl.sh and recipe/ditto/run_rl.sh launch this script. The config is verl/ditto/config/trainer.yaml.
"""

from __future__ import annotations

import sys

from ditto.launch import main

if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
