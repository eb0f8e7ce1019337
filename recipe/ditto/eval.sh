#!/usr/bin/env bash
# Evaluate models on SOUL:
#   OPENAI_AGENT_MODEL=gpt-5.4 OPENAI_API_KEY=... bash recipe/ditto/eval.sh api [options and section.key=value words]
#   ACTOR_MODEL_PATH="Qwen/Qwen3-8B outputs/run/global_step_50" bash recipe/ditto/eval.sh local [the same] [-- vLLM's arguments]
#   SUITE=paper DRY_RUN=1 bash recipe/ditto/eval.sh api      only prints the plan: calls, tokens, price, time
#
# api evaluates a model behind an OpenAI-compatible endpoint and needs the base install only: no torch, no Ray.
# local serves checkpoints with vLLM, one after another, and stops its server at the end.
#
# Environment variables of both:
#   TASKS                         evaluation sets, separated by spaces, commas or line breaks; without TASKS and SUITE, all 27
#   SUITE                         instead of TASKS: paper (its ten sets, 100 rows each), soul_v1 or all (the 27 sets)
#   LIMIT, N                      rows of each set, samples of each row
#   DATA_DIR                      folder of the task files; a set without a file is listed and skipped
#   OUTPUT_DIR, EXPERIMENT_NAME   the run's folder is OUTPUT_DIR/EXPERIMENT_NAME-HASH
#   DRY_RUN=1                     check the endpoints, print calls, tokens and price, evaluate nothing (0: off)
#   OPENAI_API_KEY, OPENAI_BASE_URL, JUDGE_MODEL_NAME    the judges: the paper's, or one for all sets
# Of api: OPENAI_AGENT_MODEL, OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY, OPENAI_AGENT_REASONING_EFFORT.
# Of local:
#   ACTOR_MODEL_PATH              one or several, space-separated: hub id, folder, global_step_N, LoRA adapter
#   BASE_MODEL_PATH               the base model of a LoRA adapter that names none
#   TP, DP, PLATFORM              devices per replica, number of replicas, cpu or gpu instead of the detected platform
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
source "$ROOT/scripts/launch"
show_usage "$@"
read_dry_run
MODE=${1:-}
case $MODE in
  api)
    python=python3
    for made in "$ROOT"/.venv{-cpu,-gpu,}/bin/python; do [ ! -x "$made" ] || { python=$made; break; }; done
    python=${PYTHON:-$python}
    "$python" -c "import soul.evaluate, openai, aiohttp" 2>/dev/null ||
      { echo "eval.sh: $python lacks the base install: $python -m pip install -e $ROOT (or name another with PYTHON=...)" >&2; exit 2; }
    command=(evaluate) ;;
  local)
    find_python
    command=(evaluate local) ;;
  *)
    echo "eval.sh: say 'api' (a model behind an OpenAI-compatible endpoint) or 'local' (a checkpoint, served by vLLM)" >&2
    exit 2 ;;
esac
shift
named=${TASKS:-}${SUITE:-}
for word in "$@"; do case $word in -* | *=*) ;; *) named+=$word ;; esac; done
[ -n "$named" ] || [ -z "${TASK:-}" ] || refuse "TASK=$TASK is read by training. What to evaluate: TASKS=$TASK."
words_of sets "${TASKS:+${TASKS//,/ }}"
parallel=()
[ "$MODE" = api ] || parallel=(${TP:+--tp "$TP"} ${DP:+--dp "$DP"})
exec "$python" -m soul "${command[@]}" ${SUITE:+--suite "$SUITE"} ${DRY_RUN:+--dry-run} ${LIMIT:+--limit "$LIMIT"} ${N:+--n "$N"} \
  "${parallel[@]}" "${sets[@]}" "$@"
