"""A training run: its folder, checkpoints, locks, signals and failures.

run_folder.py        who may write to a run folder; metrics, traces, loggers and report of a run
stop_signals.py      SIGTERM and Ctrl-C in the driver, and how it asks the trainer to stop after its step
ray_private.py       what we take from Ray's private names
watchdog.py          ends a phase that is stuck or has lost an actor, with its cause
step_metrics.py      a step's metrics from its sessions
checkpoint.py        checkpoint folders: publish, prune, find the newest complete one
checkpoint_writer.py writes a checkpoint during a step, publishes it after the step's metrics
reshard.py           reads a checkpoint on another number of ranks
manifest.py          a checkpoint's list of files, sizes and hashes
export.py            turns a checkpoint into a model path: merged LoRA, stored dtype
"""
