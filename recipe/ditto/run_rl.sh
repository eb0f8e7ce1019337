#!/usr/bin/env bash
# The recipe of the paper, DITTO:   bash recipe/ditto/run_rl.sh TASK [hydra overrides...]
# Values: recipe/ditto/config/ditto.yaml. Environment variables: scripts/launch.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
TASK=${1:-${TASK:-sotopia}}
shift $(($# > 0 ? 1 : 0))
source "$ROOT/scripts/launch"
launch "$ROOT/recipe/ditto/config" ditto "$TASK" "$@"
