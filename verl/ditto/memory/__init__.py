"""Compute how much memory a run needs on each GPU and each node, before anything starts.

    plan.py          the memory plan of a composed config: printed by a dry run, checked before every start
    setup.py         the config's values that matter for memory
    read_model.py    a model's shape, from its transformers config
    model_shape.py   what the plan knows of a model
    phases.py        the memory of each phase of a step
    training.py      the training process on a GPU
    head.py          the output head
    rollout.py       vLLM on a GPU
    host.py          a node's host memory
    machine.py       this machine's GPU and host memory
    remedy.py        which overrides would make a run fit

`model_shape`, `head` and `training` are plain Python, and `read_model.shape_of` needs only torch and transformers:
benchmarks import them without verl.
"""
