"""Benchmarks: run one with `python -m benchmarks.NAME`; `--help` explains what it measures and its goals.

    step, prefix_tree, driver    an update and its passes, groups as trees, the trainer's own process
    learning                     what the objectives learn
    evaluate, parity             evaluation beside other harnesses; scores beside the authors' own
    judge, judge_actor, throttle the judge gateway, the actor of a run, a throttled endpoint
    sft, sft_data                supervised training beside TRL, its data loading
    gpu                          attention, head and update on one GPU
    kills                        kill runs again and again, and compare them with undisturbed runs

The other modules are parts of these: the server, contenders, worlds to learn in. `side_by_side` has what they share.
"""
