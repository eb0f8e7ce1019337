"""Our changes to the models that verl trains (attention, output head, dtypes), and checks of a model folder.

install.py          what verl imports before it builds a model
attention.py        attention over packed sequences
chunked_head.py     log-probs and entropy, a chunk of tokens at a time
chunked_models.py   a model's class with the chunked head
engine.py           verl's FSDP engine with frozen weights in bfloat16
prefix_tree/        the beginning of a group's rows once
teaching.py         a teacher's pass over a micro-batch (teacher_weights.py: SDPO's; experts.py: checkpoints)
attention_check.py  runs one attention layer before an engine starts
head_settings.py    checks the settings of the head, and that the chunked one is exact for the model
pack_check.py       compares rows of a pack with each row alone (small_models.py: in a small model of the same class)
tokenizer_check.py  loads and checks a tokenizer
weights_check.py    checks the weights of a model folder
"""
