#!/usr/bin/env bash
# Train a model on a task with DITTO, the recipe of the paper:
#   bash recipe/ditto/run_rl.sh TASK [KEY=VALUE ...]
# The recipe's values are in recipe/ditto/config/ditto.yaml. Tasks, keys, environment variables, exit codes:
#   bash run_rl.sh --help
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
source "$ROOT/scripts/launch"
show_usage "$@"
launch "$ROOT/recipe/ditto/config" ditto "$@"
