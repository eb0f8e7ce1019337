#!/usr/bin/env bash
# Train a model on a task with vanilla GRPO:
#   bash run_rl.sh TASK [KEY=VALUE ...]      KEY=VALUE: a Hydra override, which wins over every variable below
#   bash run_rl.sh demo                      see DITTO at work in minutes, on a CPU
# The paper's recipe, DITTO, is started in the same way: bash recipe/ditto/run_rl.sh TASK [KEY=VALUE ...]
#
# TASK is a name, several with commas, "paper" (its ten tasks) or "all"; without one it is $TASK, else sotopia.
# List the tasks with `soul tasks` and the keys with `python train_ppo.py --cfg`.
#
# Environment variables:
#   ACTOR_MODEL_PATH              hub id, folder or global_step_N to start from
#   DATA_DIR                      folder of the task files (data)
#   TRAIN_FILES, VAL_FILES        parquet files, space-separated; a name with spaces stands in quotes
#   OUTPUT_DIR, EXPERIMENT_NAME   the run's folder is OUTPUT_DIR/EXPERIMENT_NAME (outputs/ditto-rl-TASK)
#   N_GPUS, TOTAL_TRAINING_STEPS, TEST_FREQ, SAVE_FREQ
#   DRY_RUN=1                     check everything, print the plan, start nothing
#   PLATFORM=cpu|gpu              instead of the platform that is detected
#   OPENAI_API_KEY, OPENAI_BASE_URL, JUDGE_MODEL_NAME, JUDGE_MODEL_REASONING    the judge
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
if [ "${1:-${TASK:-}}" = demo ]; then
  shift $(($# > 0 ? 1 : 0))
  exec bash "$ROOT/recipe/demo/run.sh" "$@"
fi
launch "$ROOT/verl/ditto/config" run_rl "$@"
