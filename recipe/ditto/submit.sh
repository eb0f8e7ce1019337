#!/usr/bin/env bash
# Submit the recipe of recipe/ditto/run_rl.sh to a cluster:
#   bash recipe/ditto/submit.sh BACKEND [--dry-run] TASK [KEY=VALUE ...]
#   DRY_RUN=1 bash recipe/ditto/submit.sh slurm hitom trainer.nnodes=2     print what would be submitted, submit nothing
#
# BACKEND   where                                          what it calls
#   ray       a Ray cluster that is running                  ray job submit (RAY_API_SERVER_ADDRESS, RAY_JOB_HEADERS: Ray's)
#   slurm     an allocation of nodes                         sbatch (SBATCH_PARTITION, SBATCH_TIMELIMIT, ...: Slurm's)
#
# The number of nodes and GPUs follows from trainer.nnodes and trainer.n_gpus_per_node. First everything is checked that a
# dry run of run_rl.sh checks, on this machine: settings, files, rows, model, judge. The job checks it again on its nodes.
# Keys travel by the names of their variables: this program puts them on no command line and in no file. Slurm
# keeps the environment of a job on its controller.
#
# Environment variables: those of run_rl.sh except TASK (PLATFORM is the cluster's: gpu), and
#   JUDGE_MODEL_PATH, JUDGE_GPUS    slurm: serve this model as the judge on one more node, with so many GPUs (8)
#
# The same command resumes a run that was stopped, preempted or killed. Exit codes: 0 submitted, 2 the command or its
# input is wrong, 1 the backend refused.
if [ -z "${BASH_VERSION:-}" ]; then exec bash "$0" "$@"; fi  # started with sh
[ "${BASH_SOURCE[0]}" = "$0" ] || { echo "Run it instead of sourcing it: bash ${BASH_SOURCE[0]}" >&2; return 2; }
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
source "$ROOT/scripts/launch"
show_usage "$@"
cluster=${PLATFORM:-gpu}
PLATFORM=$(detect_platform)
prepare
export PLATFORM=$cluster LOGGING_LEVEL=${LOGGING_LEVEL:-ERROR} TQ_LOGGING_LEVEL=${TQ_LOGGING_LEVEL:-ERROR}
exec "$python" -m recipe.ditto.submit "$@"
