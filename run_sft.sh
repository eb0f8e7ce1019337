#!/usr/bin/env bash
# Supervised training (midtraining, SFT):
#   bash run_sft.sh [KEY=VALUE ...]          KEY=VALUE: a Hydra override, which wins over every variable below
# List the keys with `python train_sft.py --cfg`.
#
# Environment variables:
#   ACTOR_MODEL_PATH              hub id, folder or global_step_N to start from
#   DATA_DIR                      folder in which the shards are looked for
#   TRAIN_FILES, VAL_FILES        paths or globs instead, space-separated, each with an optional :ratio
#   RL_TEST_FILES, RL_TEST_FREQ   evaluate a checkpoint on these sets or files every so many steps
#   N_GPUS, TOTAL_TRAINING_STEPS, TEST_FREQ, SAVE_FREQ
#   OUTPUT_DIR, EXPERIMENT_NAME   the run's folder is OUTPUT_DIR/EXPERIMENT_NAME (outputs/osim-8b-mid)
#   DRY_RUN=1                     check everything, tokenise the corpus, train nothing
#   PLATFORM=cpu|gpu              instead of the platform that is detected
#   NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT    several nodes: run the same command on each, with its own NODE_RANK
#
# The same command resumes a run that was stopped or killed, from its newest whole checkpoint. Ctrl-C and SIGTERM finish
# the step and save it; a second one ends the run at once.
# Exit codes: 0 done, 1 the run could not go on, 2 the command or its input is wrong, 130 Ctrl-C, 143 SIGTERM.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
source "$ROOT/scripts/launch"
show_usage "$@"
prepare
exec "$python" "$ROOT/train_sft.py" --launcher sft "$@"
