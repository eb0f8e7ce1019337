#!/usr/bin/env bash
# Midtraining and SFT:   bash run_sft.sh [hydra overrides...]
# Environment variables of the original: OUTPUT_DIR, EXPERIMENT_NAME, DATA_DIR (where the shards are found), TRAIN_FILES,
# VAL_FILES (paths or globs by blanks, each with an optional :ratio), RL_TEST_FILES, RL_TEST_FREQ, ACTOR_MODEL_PATH, N_GPUS,
# TOTAL_TRAINING_STEPS, TEST_FREQ, SAVE_FREQ. Ours: PLATFORM=cpu|gpu, DRY_RUN=1, and NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT
# for several nodes: the same command on each.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")" && pwd)
if [ -z "${PLATFORM:-}" ]; then
  if [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ]; then PLATFORM=gpu; else PLATFORM=cpu; fi
fi
python=$(bash "$ROOT/scripts/env" "$PLATFORM")
if [ "$PLATFORM" = cpu ]; then export VERL_PLATFORM=cpu OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}; fi
OUTPUT_DIR=${OUTPUT_DIR:-outputs}
EXPERIMENT_NAME=${EXPERIMENT_NAME:-osim-8b-mid}
source "$ROOT/scripts/launch"
export_homes
export TOKENIZERS_PARALLELISM=false NCCL_DEBUG=${NCCL_DEBUG:-WARN}
words=("platform=$PLATFORM" "trainer.experiment_name=$EXPERIMENT_NAME" "run.dir=$OUTPUT_DIR/$EXPERIMENT_NAME")
given() { [ -z "${2:-}" ] || words+=("$1='$2'"); }  # quoted: a path may hold Hydra's own signs
number() { [ -z "${2:-}" ] || words+=("$1=$2"); }
given data.dir "${DATA_DIR:-}"
given data.train_files "${TRAIN_FILES:-}"
given data.val_files "${VAL_FILES:-}"
given model.path "${ACTOR_MODEL_PATH:-}"
given trainer.rl_test_files "${RL_TEST_FILES:-}"
number trainer.rl_test_freq "${RL_TEST_FREQ:-}"
number trainer.n_gpus_per_node "${N_GPUS:-}"
number trainer.nnodes "${NNODES:-}"
number trainer.total_training_steps "${TOTAL_TRAINING_STEPS:-}"
number trainer.test_freq "${TEST_FREQ:-}"
number trainer.save_freq "${SAVE_FREQ:-}"
[ -z "${DRY_RUN:-}" ] || words+=("+dry_run=true")
exec "$python" "$ROOT/train_sft.py" "${words[@]}" "$@"
