#!/usr/bin/env bash
# Evaluate a model on SOUL:
#   OPENAI_AGENT_MODEL=gpt-5.4 OPENAI_API_KEY=... bash recipe/ditto/eval.sh api [options and section.key=value words]
# Environment variables: OPENAI_AGENT_MODEL, OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY, OPENAI_AGENT_REASONING_EFFORT (the
# model under test), DATA_DIR, OUTPUT_DIR, EXPERIMENT_NAME, TASKS (sets, by blanks or commas; all 27 where unset), LIMIT (rows
# a set; the paper: 100), N (samples a row). Needs the base install only: no torch, no Ray.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
MODE=${1:-}
if [ "$MODE" != api ]; then
  echo "eval.sh: say 'api' (a model behind an OpenAI-compatible endpoint, a vLLM server of yours included)" >&2
  exit 2
fi
shift
python=${PYTHON:-$ROOT/.venv/bin/python}
command -v "$python" >/dev/null || python=python3
"$python" -c "import agents.evaluate, openai, tenacity" 2>/dev/null ||
  { echo "eval.sh: $python lacks the base install: $python -m pip install -e $ROOT (or name another with PYTHON=...)" >&2; exit 2; }
read -ra sets <<<"${TASKS:+${TASKS//,/ }}"
exec "$python" -m agents.evaluate ${LIMIT:+--limit "$LIMIT"} ${N:+--n "$N"} "$@" "${sets[@]}"
