"""Our changes to the models that verl trains (attention, output head, dtypes), and checks of a model folder.

install.py             what verl imports before it builds a model
attention.py           attention over packed sequences
chunked_head.py        log-probs, entropy and divergences, a chunk of tokens at a time
engine.py              verl's FSDP engine with frozen weights in bfloat16
prefix_tree/           the beginning of a group's rows once
teaching.py            a teacher's pass over a micro-batch (teacher_weights.py: SDPO's own weights)
exactness.py           compares packed rows and the chunked head with plain ones, in a small model of the same class
adapter_check.py       checks the layers that LoRA adapts
model_folder.py        loads a tokenizer, checks the weights of a folder
expert_checkpoints.py  finds and checks the checkpoints that teach
"""
