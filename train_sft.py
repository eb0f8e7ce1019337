"""Supervised training: a thin Hydra entry point over verl's SFT trainer.

Checks everything first, then starts one process per device.

    python train_sft.py data.train_files=[a.parquet] model.path=MODEL trainer.n_gpus_per_node=2
    python train_sft.py ... +dry_run=true        # check everything, tokenise the corpus, print the plan, train nothing

run_sft.sh launches this script. The config is sft/config/sft.yaml.
"""

from __future__ import annotations

import sys

from sft.launch import main

if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
