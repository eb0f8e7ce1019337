#!/usr/bin/env bash
# The demo: warm-starts a tiny model, trains it with DITTO on hitom, and evaluates it before and after.
#   bash run_rl.sh demo [--compare | --real FOLDER] [hydra overrides...]    results in outputs/demo (set by OUTPUT_DIR, EXPERIMENT_NAME)
# --compare trains with GRPO for the same time as well, and draws both.
# --real trains SmolLM2-135M (or ACTOR_MODEL_PATH) on the people of MirrorBench's *_mirror.jsonl in FOLDER.
# Set OPENAI_BASE_URL and OPENAI_API_KEY to use your judge; without them an offline stand-in writes critiques by rule.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$0"; exit ;; esac
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
cd "$ROOT"
python=$(PLATFORM=cpu bash scripts/env cpu)
exec "$python" -m recipe.demo.run "$@"
