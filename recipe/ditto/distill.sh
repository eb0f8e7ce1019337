#!/usr/bin/env bash
# Distil several experts into one student:
#   EXPERTS="hitom=outputs/hitom sotopia=outputs/sotopia" bash recipe/ditto/distill.sh [section.key=value ...] [-- vLLM's arguments]
# The experts answer the training rows of their tasks, the best answers are kept (python -m sft.distill), the student is
# trained on them (run_sft.sh), and base, experts and student are evaluated on the tasks (eval.sh local). The same command
# goes on where it stopped: no answer is asked for twice, and a student of the same data and settings is not trained again.
#
#   MODE=reverse       distils on policy instead: the experts score what the student samples (distill_reverse.sh --help)
#   EXPERTS            TASK=EXPERT or TASK:FILE=EXPERT, separated by spaces or line breaks (docs/distillation.md)
#   ACTOR_MODEL_PATH   the student starts from it; the comparison's base (Qwen/Qwen3-8B)
#   OUTPUT_DIR, EXPERIMENT_NAME    everything goes to outputs/distilled
#   DATA_DIR, TRAIN_FILES          where the rows are, as in run_rl.sh
#   SAMPLES, ROWS, KEEP_ARGS       answers per row (8), rows per task (1024), further options of the selection ("--per-row 2")
#   WEIGHTS            the tasks' shares of the data (1: all equal, "1 hitom=2"; "none" keeps what each task has)
#   SFT_ARGS           further overrides of the training ("optim.lr=2e-5 trainer.total_epochs=2")
#   TASKS, LIMIT       evaluation sets (those of the experts' tasks), rows of each (100)
#   TP, DP, PLATFORM, OPENAI_API_KEY, OPENAI_BASE_URL, JUDGE_MODEL_NAME    as in eval.sh
#   DRY_RUN=1          checks the endpoints, prints the calls and the price of sampling and evaluation, and ends
# Settings on the command line (judge.model=..., policy.max_output_tokens=...) hold for the sampling and for the evaluation.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
source "$ROOT/scripts/launch"
source "$ROOT/recipe/ditto/distill_step"
show_usage "$@"
case ${MODE:-forward} in
  forward) ;;
  reverse) exec bash "$ROOT/recipe/ditto/distill_reverse.sh" "$@" ;;
  *) fail "MODE=$MODE: use forward or reverse" ;;
esac
check_variables SAMPLES ROWS LIMIT TP DP
find_python
words=("$@")
base=${ACTOR_MODEL_PATH:-Qwen/Qwen3-8B}
out=${OUTPUT_DIR:-outputs}/${EXPERIMENT_NAME:-distilled}
words_of experts "$EXPERTS"
words_of sft_args "${SFT_ARGS:-}"
words_of keep_args "${KEEP_ARGS:-}"
weights=${WEIGHTS:-1}
[[ $weights != none ]] || weights=
for share in $weights; do keep_args=(--weight "$share" "${keep_args[@]}"); done

checkpoints=("$base") tasks=()
for word in "${experts[@]}"; do
  [[ $word = ?*=?* ]] || fail "EXPERTS: $word is not of the form TASK=EXPERT"
  place=${word%%=*} expert=${word#*=}
  [[ " ${tasks[*]} " = *" ${place%%:*} "* ]] || tasks+=("${place%%:*}")
  # An endpoint is no checkpoint: eval.sh api measures it.
  [[ $expert = endpoint:* || " ${checkpoints[*]} " = *" $expert "* ]] || checkpoints+=("$expert")
done
words_of sets "${TASKS:-${tasks[*]}}"
sets=("${sets[@]//,/ }")
not_in=()
for name in ${sets[*]}; do not_in+=(--not-in "$name"); done
# Three passes over a small corpus, in small batches; the learning rate is that of midtraining (run_sft.sh).
training=(data.train_batch_size=64 trainer.total_training_steps=null trainer.total_epochs=3 optim.lr_warmup_steps=10
  "${sft_args[@]}")

train() {
  local val=""
  [ ! -e "$out/data/val.parquet" ] || val=$(quoted "$out/data/val.parquet")
  DATA_DIR="$out/data" TRAIN_FILES=$(quoted "$out/data/train.parquet") VAL_FILES="$val" ACTOR_MODEL_PATH="$base" \
    OUTPUT_DIR="$out" EXPERIMENT_NAME=student bash "$ROOT/run_sft.sh" "${training[@]}"
}

echo "== data: ${experts[*]}"
"$python" -m sft.distill --out "$out/data" --n "${SAMPLES:-8}" --limit "${ROWS:-1024}" ${TP:+--tp "$TP"} ${DP:+--dp "$DP"} \
  ${DRY_RUN:+--dry-run} "${not_in[@]}" "${keep_args[@]}" "${experts[@]}" "${words[@]}"
if [ -z "${DRY_RUN:-}" ]; then
  once "student: SFT from $base" student train "$base" "${training[@]}" "$(cat "$out"/data/*.parquet | sha256sum)"
elif [ ! -e "$out/student" ]; then
  echo "The student is not there yet: its evaluation makes the same calls as that of the base."
fi
evaluation
