"""Compute how much memory a run needs on each GPU and each node, before anything starts.

    estimate.py      the arithmetic: weights, gradients, optimizer, activations, logits, engine, host
    model_shape.py   a model's shape, from its transformers config
    setup.py         the config's values that matter for memory
    plan.py          the plan of a run on GPUs: printed by a dry run, checked before every start
    cpu.py           the plan of a run without a GPU, which chooses what the config leaves open
    remedy.py        which overrides would make a run fit

`estimate` and `model_shape` need no verl: benchmarks import them without it.
"""
