#!/usr/bin/env bash
# Distil several experts into one student on policy: MODE=reverse of distill.sh.
#   EXPERTS="hitom=outputs/hitom sotopia=outputs/sotopia" bash recipe/ditto/distill_reverse.sh [section.key=value ...] [-- vLLM's arguments]
# The student answers the training rows of all tasks, and the expert of a row's task scores every token that it sampled
# (algorithm.objective=on_policy_distillation); then base, experts and students are evaluated on the tasks (eval.sh local).
# A student of the same inputs is not trained again; one that was interrupted resumes.
#
#   EXPERTS            TASK=EXPERT or TASK:FILE=EXPERT, separated by spaces or line breaks: one checkpoint for each task (docs/distillation.md)
#   ACTOR_MODEL_PATH   the student starts from it; the comparison's base (Qwen/Qwen3-8B)
#   OUTPUT_DIR, EXPERIMENT_NAME    everything goes to outputs/distilled; the student is student-reverse in it
#   DATA_DIR, TRAIN_FILES          where the rows are, as in run_rl.sh
#   ROWS               rows per task (1024)
#   RL_ARGS            further overrides of the training ("trainer.total_training_steps=100 actor_rollout_ref.rollout.n=4")
#   TASKS, LIMIT       evaluation sets (those of the experts' tasks), rows of each (100)
#   TP, DP, PLATFORM, OPENAI_API_KEY, OPENAI_BASE_URL, JUDGE_MODEL_NAME    as in eval.sh
#   DRY_RUN=1          checks everything, prints the plan of the training, and ends
# Settings on the command line hold for the evaluation; those of the judge's roles and of tasks also for the training.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
source "$ROOT/scripts/launch"
source "$ROOT/recipe/ditto/distill_step"
show_usage "$@"
for name in SAMPLES KEEP_ARGS WEIGHTS SFT_ARGS; do
  [ -z "${!name:-}" ] || fail "$name belongs to MODE=forward: MODE=reverse keeps no samples. Overrides of its training are RL_ARGS."
done
check_variables ROWS LIMIT TP DP
find_python
words=("$@")
base=${ACTOR_MODEL_PATH:-Qwen/Qwen3-8B}
out=${OUTPUT_DIR:-outputs}/${EXPERIMENT_NAME:-distilled}
words_of experts "$EXPERTS"
words_of rl_args "${RL_ARGS:-}"

checkpoints=("$base") tasks=() files=() teachers=()
for word in "${experts[@]}"; do
  [[ $word = ?*=?* ]] || fail "EXPERTS: $word is not of the form TASK=EXPERT"
  place=${word%%=*} expert=${word#*=}
  task=${place%%:*}
  [[ $expert != endpoint:* ]] || fail "EXPERTS: $word: an endpoint cannot score the student's tokens. Name a checkpoint, or use MODE=forward."
  [[ " ${tasks[*]} " != *" $task "* ]] || fail "EXPERTS names two experts for $task: with MODE=reverse each task has one."
  tasks+=("$task") teachers+=("+algorithm.distill.teachers.$task='$expert'")
  [ "$place" = "$task" ] || files+=("${place#*:}")
  [[ " ${checkpoints[*]} " = *" $expert "* ]] || checkpoints+=("$expert")
done
[[ ${#files[@]} = 0 || ${#files[@]} = "${#tasks[@]}" ]] || fail "EXPERTS: name a file for each task (TASK:FILE=EXPERT), or for none"
words_of sets "${TASKS:-${tasks[*]}}"
sets=("${sets[@]//,/ }")
held_back=()
for name in ${sets[*]}; do [[ $name != *.parquet ]] || held_back+=("$name"); done
shared=() # settings that hold for the training too
for word in "$@"; do
  case $word in
    --) break ;;
    judge.* | feedback.* | partner.* | environment.* | tasks.*) shared+=("$word") ;;
  esac
done
training=(algorithm.objective=on_policy_distillation "${teachers[@]}" "data.mixture.rows_per_task=${ROWS:-1024}"
  trainer.val_before_train=false trainer.test_freq=-1 "${shared[@]}" "${rl_args[@]}")

train() { # the rows of all tasks; its own validation is off, because the evaluation follows
  TRAIN_FILES="${files[*]:-${TRAIN_FILES:-}}" VAL_FILES="${held_back[*]}" ACTOR_MODEL_PATH="$base" OUTPUT_DIR="$out" \
    EXPERIMENT_NAME=student-reverse bash "$ROOT/run_rl.sh" "$(IFS=,; echo "${tasks[*]}")" "${training[@]}"
}

once "student: on-policy distillation from $base" student-reverse train "$base" "${files[@]}" "${training[@]}"
[ -z "${DRY_RUN:-}" ] || exit 0
evaluation
