"""Benchmarks: run one with `python -m benchmarks.NAME`; `--help` explains what it measures and its goals.

    step, prefix_tree, driver           an update and its passes, groups as trees, the trainer's own process
    grpo_vs_trl, learning               a step of GRPO beside TRL's; what the objectives learn
    evaluate, parity                    evaluation beside other harnesses; scores beside the authors' own
    judge, throttle, limits_load        the judge gateway, a throttled endpoint, the limits of a run
    sft, sft_data, sft_saves            supervised training beside TRL, its data loading, its checkpoints
    startup, cpu_sampling               the start of a run, sampling with an adapter, on a CPU
    gpu, cluster                        attention, head and update on one GPU; a simulation of many
    kills, sft_kills                    kill runs again and again, and compare them with undisturbed runs

The other modules are parts of these: servers, contenders that run in another interpreter, audits. `side_by_side` has
what they share.
"""
