#!/usr/bin/env bash
# Compare the learning algorithms of the paper's figure 4: train one model with each, several seeds each, and draw them.
#   bash recipe/ditto/ablations.sh TASK [KEY=VALUE ...]      KEY=VALUE: a Hydra override, for every run
# The runs follow one another, each with the recipe of recipe/ditto/run_rl.sh; `soul figures` then draws the finished ones.
#
#   OBJECTIVES    those of the figure: ditto grpo ditto_refined_only rltf_sd erl sdpo_token_grpo sdpo_logits_grpo
#                 sdpo_token sdpo_logits; or any that docs/objectives.md names, space-separated
#   SEEDS         whole numbers, space-separated (1 2 3)
#   OUTPUT_DIR, EXPERIMENT_NAME    everything goes to outputs/ablations-TASK: OBJECTIVE-seedN, logs, figures
#   DRY_RUN=1     check every objective, print the plan of the first, start nothing
#   ACTOR_MODEL_PATH, DATA_DIR, TRAIN_FILES, VAL_FILES, PLATFORM, OPENAI_API_KEY, OPENAI_BASE_URL, JUDGE_MODEL_NAME
#                 as in run_rl.sh
#
# The same command continues: a finished run is not repeated (OBJECTIVE-seedN.done says so), an unfinished one resumes from its
# newest checkpoint, and one that failed is tried again. Other settings, rows, models or judges are refused: all runs of a
# folder share them. Ctrl-C and SIGTERM finish the step of the present run, save it, and end. Exit codes: those of run_rl.sh;
# 1 if a run has failed.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
source "$ROOT/scripts/launch"
show_usage "$@"
find_python
read_dry_run
[ $# -gt 0 ] || refuse "Name the task to train: bash recipe/ditto/ablations.sh TASK"
task=$1
shift
words_of objectives "${OBJECTIVES:-ditto grpo ditto_refined_only rltf_sd erl sdpo_token_grpo sdpo_logits_grpo sdpo_token sdpo_logits}"
words_of seeds "${SEEDS:-1 2 3}"
for seed in "${seeds[@]}"; do [[ $seed =~ ^[0-9]+$ ]] || refuse "SEEDS: $seed: use whole numbers."; done
out=${OUTPUT_DIR:-outputs}/${EXPERIMENT_NAME:-ablations-${task//,/+}}

# What all runs of the folder share, as far as it changes a result; only its hash is written, for it may hold a key.
shared=("$task")
for word in "$@"; do
  case ${word#+} in
    algorithm.objective=* | *seed=* | run.dir=* | trainer.experiment_name=*)
      refuse "$word: this differs between the runs of an ablation. Use OBJECTIVES, SEEDS, OUTPUT_DIR and EXPERIMENT_NAME." ;;
    run.* | trainer.logger=* | trainer.save_freq=* | trainer.max_actor_ckpt_to_keep=* | judge.budget_usd=*) ;;
    *) shared+=("$word") ;;
  esac
done
for name in ACTOR_MODEL_PATH TRAIN_FILES VAL_FILES DATA_DIR JUDGE_MODEL_NAME JUDGE_MODEL_REASONING; do
  shared+=("$name=${!name:-}")
done
shared=$(printf '%s\n' "${shared[@]}" | sha256sum)
if [ -e "$out/shared.sha256" ] && [ "$(cat "$out/shared.sha256")" != "$shared" ]; then
  refuse "The runs in $out were trained with another task, override, model, rows or judge, which all of them share." \
    "Undo the change, or start anew in another folder: EXPERIMENT_NAME=..."
fi

run_rl() { # run_rl OBJECTIVE SEED [KEY=VALUE ...]: one run, with everything that its seed decides
  local objective=$1 seed=$2
  shift 2
  OUTPUT_DIR=$out EXPERIMENT_NAME=$objective-seed$seed exec bash "$ROOT/recipe/ditto/run_rl.sh" "$task" "$@" \
    "algorithm.objective=$objective" "data.seed=$seed" "actor_rollout_ref.actor.data_loader_seed=$seed" \
    "actor_rollout_ref.rollout.seed=$seed" "actor_rollout_ref.actor.fsdp_config.seed=$seed"
}

for objective in "${objectives[@]}"; do
  plan=$(DRY_RUN=1 run_rl "$objective" "${seeds[0]}" "$@")
  [ "$objective" != "${objectives[0]}" ] || echo "$plan"
done
[ -z "$DRY_RUN" ] || exit 0
mkdir -p "$out/logs"
echo "$shared" >"$out/shared.sha256"

child='' stopped='' # a signal to this program is passed on, and the present run saves its step
for signal in HUP INT USR1 TERM; do
  trap "stopped=$((128 + $(kill -l $signal))); kill -TERM \$child 2>/dev/null || true" "$signal"
done
failed=()
declare -A folders # objective -> its finished runs, joined by commas
for seed in "${seeds[@]}"; do # all objectives can be compared as soon as the first seed is through
  for objective in "${objectives[@]}"; do
    name=$objective-seed$seed log=$out/logs/$objective-seed$seed.log code=0
    if [ ! -e "$out/$name.done" ]; then
      echo "== $name: its log is $log"
      run_rl "$objective" "$seed" "$@" >"$log" 2>&1 &
      child=$!
      wait "$child" || code=$?
      while kill -0 "$child" 2>/dev/null; do code=0; wait "$child" || code=$?; done # after a signal
      [ -z "$stopped" ] || { echo "Stopped. Run the same command to continue."; exit "$stopped"; }
      # A run whose budget is spent ends with 0, and is not finished.
      if [ "$code" != 0 ] || tail -n 20 "$log" | grep "judge.budget_usd=.* is spent"; then
        failed+=("$name")
        echo "== $name ended with code $code. The end of its log:"
        tail -n 8 "$log"
        continue
      fi
      touch "$out/$name.done"
    fi
    folders[$objective]+=${folders[$objective]:+,}$out/$name
  done
done
runs=()
for objective in "${objectives[@]}"; do
  [ -z "${folders[$objective]:-}" ] || runs+=("$objective=${folders[$objective]}")
done
[ ${#runs[@]} = 0 ] || "$python" -m soul figures --out "$out/figures" --runs "${runs[@]}"
if [ ${#failed[@]} -gt 0 ]; then
  echo "${#failed[@]} runs failed: ${failed[*]}. The same command tries them again."
  exit 1
fi
