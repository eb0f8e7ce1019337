"""A training run: its folder, checkpoints, locks, signals and failures.

run_lock.py          one driver and one trainer per run folder
stop_signals.py      SIGTERM and Ctrl-C in the driver
stop_request.py      how the driver asks the trainer to stop after its step
watchdog.py          ends a stuck phase with its cause
actor_health.py      notices actors that died
run_folder.py        metrics and traces of a run
step_metrics.py      a step's metrics from its sessions
checkpoint.py        checkpoint folders: publish, prune, find the newest complete one
checkpoint_writer.py writes a checkpoint during a step, publishes it after the step's metrics
checkpoint_space.py  checks the free disk space before a checkpoint
rank_files.py        names of the files that each rank writes
reshard.py           reads a checkpoint on another number of ranks
manifest.py          a checkpoint's list of files, sizes and hashes
store.py             a run in an object store: layout, manifest, upload, download
uploads.py           copies to the store beside the training
store_resume.py      claims the store before a run, fetches what the disk lacks
export.py            turns a checkpoint into a model path: merged LoRA, stored dtype
"""
