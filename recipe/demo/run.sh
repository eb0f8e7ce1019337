#!/usr/bin/env bash
# The demo: a tiny model is warm-started, trained with DITTO on hitom, and measured before and after.
#   bash run_rl.sh demo [hydra overrides...]          results in outputs/demo (OUTPUT_DIR, EXPERIMENT_NAME move it)
# Without OPENAI_BASE_URL and OPENAI_API_KEY an offline stand-in writes the critiques by rule; with them your judge does.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$0"; exit ;; esac
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
cd "$ROOT"
python=$(PLATFORM=cpu bash scripts/env cpu)
exec "$python" -m recipe.demo.run "$@"
