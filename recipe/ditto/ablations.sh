#!/usr/bin/env bash
# Compare the learning algorithms of the paper's figure 4: train one model with each, several seeds each, and draw them.
#   bash recipe/ditto/ablations.sh TASK [KEY=VALUE ...]      KEY=VALUE: a Hydra override, for every run
# The runs follow one another, each with the recipe of recipe/ditto/run_rl.sh; `soul figures` then draws the finished ones.
#
#   OBJECTIVES    those of the figure: ditto grpo ditto_refined_only rltf_sd erl sdpo_token_grpo sdpo_logits_grpo
#                 sdpo_token sdpo_logits; or any that docs/objectives.md names, space-separated
#   SEEDS         whole numbers, space-separated (1 2 3)
#   OUTPUT_DIR, EXPERIMENT_NAME    everything goes to outputs/ablations-TASK: OBJECTIVE-seedN, logs, figures
#   DRY_RUN=1     check the runs, say what would be done, start nothing
#   ACTOR_MODEL_PATH, DATA_DIR, TRAIN_FILES, VAL_FILES, PLATFORM, OPENAI_API_KEY, OPENAI_BASE_URL, JUDGE_MODEL_NAME
#                 as in run_rl.sh
#
# The same command continues: a finished run is not repeated, an unfinished one resumes from its newest checkpoint, and one
# that failed is tried again. Other settings, rows, models or judges are refused: all runs of a folder share them. Ctrl-C and
# SIGTERM finish the step of the present run, save it, and end. Exit codes: those of run_rl.sh; 1 if a run has failed.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
source "$ROOT/scripts/launch"
show_usage "$@"
prepare
export LOGGING_LEVEL=${LOGGING_LEVEL:-ERROR} TQ_LOGGING_LEVEL=${TQ_LOGGING_LEVEL:-ERROR}
exec "$python" -m recipe.ditto.ablations "$@"
