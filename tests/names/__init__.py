"""Does the installed training stack still have what our code takes from it?

`python -m tests.names` reads our sources, imports every module of ours, and asks the installed packages: does each
imported name exist, does each function take what we hand it, does each base class still have the methods we override,
with parameters that fit? The list is made from the sources, so nothing has to be kept up. What it cannot see is the
type of a value: that `replica.servers` exists shows only in a run.

`scripts/test` runs it every day on the CPU set, `scripts/test --gpu-pins` on the GPU set, `scripts/test --verl` on
another verl.
"""
