"""Benchmarks: run one with `python -m benchmarks.NAME`; `--help` explains what it measures and its goals.

    judge, rollout, driver, step        the judge gateway, a batch of rollouts, the trainer's own process, an update
    evaluate, schedule                  evaluation beside other harnesses; the estimate of the time left
    throttle                            verdicts lost and time at a throttled endpoint
    sft, sft_data                       supervised training beside TRL; its data loading
    grpo_vs_trl                         a step of GRPO beside TRL's
    head, gpu                           log-probs on a CPU; attention, head and update on one GPU
    kills, sft_kills                    kill runs again and again, and compare them with undisturbed runs

The other modules are parts of these: servers, contenders that run in another interpreter, audits.
"""
