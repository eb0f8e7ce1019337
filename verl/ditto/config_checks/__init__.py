"""Check the composed config before any row is read or engine started.

    key_types.py        the type, the range and the meaning of a key; what to tell about a key that nothing reads
    keys.py             every key that RL reads
    rules.py            the rules that RL and supervised training share
    rl_rules.py         values that cannot work, or not together
    objective_rules.py  the options of objectives, and what each objective needs
    policy_losses.py    which policy losses of verl are correct here, and which options they read
    resume.py           the checkpoint that the run resumes from
    resume_changes.py   what a resumed run may change
    row_count_rules.py  checks that need the rows or the model

Each mistake is a BadConfig: one paragraph with key, value, reason and what to do.
"""
