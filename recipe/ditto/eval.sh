#!/usr/bin/env bash
# Evaluate models on SOUL:
#   OPENAI_AGENT_MODEL=gpt-5.4 OPENAI_API_KEY=... bash recipe/ditto/eval.sh api [options and section.key=value words]
#   ACTOR_MODEL_PATH="Qwen/Qwen3-8B outputs/run/global_step_50" bash recipe/ditto/eval.sh local [the same] [-- vLLM's arguments]
#   SUITE=paper DRY_RUN=1 bash recipe/ditto/eval.sh api      only prints the plan: calls, tokens, price, time
#
# Environment variables of both: DATA_DIR, OUTPUT_DIR, EXPERIMENT_NAME, TASKS (sets, by blanks or commas) or SUITE (paper: its
# ten sets, 100 rows each; card or all: the 27 sets), all 27 where neither is set; a set without a file is listed and left out;
# LIMIT (rows a set), N (samples a row), DRY_RUN=1 (0: off; check the endpoints, print calls, tokens, price and time, and end).
# The judges are the paper's; JUDGE_MODEL_NAME names one for all sets. OPENAI_API_KEY and OPENAI_BASE_URL go to the judges.
# api: OPENAI_AGENT_MODEL, OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY, OPENAI_AGENT_REASONING_EFFORT. Needs the base install
# only: no torch, no Ray. local: ACTOR_MODEL_PATH (one or several, by blanks: hub id, folder, global_step_N, LoRA adapter),
# BASE_MODEL_PATH (below an adapter that names none), TP, DP. Starts vLLM's server, and stops it.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$0"; exit ;; esac
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
MODE=${1:-}
case $MODE in
  api)
    python=python3
    for made in "$ROOT"/.venv{-cpu,-gpu,}/bin/python; do [ ! -x "$made" ] || { python=$made; break; }; done
    python=${PYTHON:-$python}
    "$python" -c "import soul.evaluate, openai, tenacity" 2>/dev/null ||
      { echo "eval.sh: $python lacks the base install: $python -m pip install -e $ROOT (or name another with PYTHON=...)" >&2; exit 2; }
    module=soul.evaluate ;;
  local)
    if [ -z "${PLATFORM:-}" ]; then
      if [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ]; then PLATFORM=gpu; else PLATFORM=cpu; fi
    fi
    export PLATFORM
    python=${PYTHON:-$(bash "$ROOT/scripts/env" "$PLATFORM")}
    module=soul.evaluate.local ;;
  *)
    echo "eval.sh: say 'api' (a model behind an OpenAI-compatible endpoint) or 'local' (a checkpoint, served by vLLM)" >&2
    exit 2 ;;
esac
shift
read -ra sets <<<"${TASKS:+${TASKS//,/ }}"
parallel=()
[ "$MODE" = api ] || parallel=(${TP:+--tp "$TP"} ${DP:+--dp "$DP"})
[ "${DRY_RUN:-}" != 0 ] || DRY_RUN=
exec "$python" -m "$module" ${SUITE:+--suite "$SUITE"} ${DRY_RUN:+--dry-run} ${LIMIT:+--limit "$LIMIT"} ${N:+--n "$N"} \
  "${parallel[@]}" "${sets[@]}" "$@"
