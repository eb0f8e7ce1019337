#!/usr/bin/env bash
# Train a task, or several (a,b,c | paper | all), with vanilla GRPO:   bash run_rl.sh TASK [hydra overrides...]
# See DITTO at work in minutes:   bash run_rl.sh demo
# The DITTO recipe of the paper is    bash recipe/ditto/run_rl.sh TASK. Environment variables: scripts/launch.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")" && pwd)
TASK=${1:-${TASK:-sotopia}}
shift $(($# > 0 ? 1 : 0))
if [ "$TASK" = demo ]; then exec bash "$ROOT/recipe/demo/run.sh" "$@"; fi
source "$ROOT/scripts/launch"
launch "$ROOT/verl/ditto/config" run_rl "$TASK" "$@"
