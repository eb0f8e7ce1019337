"""Check the composed config before any row is read or engine started.

    key_types.py        the type, the range and the meaning of a key; what to tell about a key that nothing reads
    keys.py             every key that RL reads
    rules.py            the rules that RL and supervised training share
    rl_rules.py         values that cannot work, or not together; verl's policy losses that are correct here
    resume.py           the checkpoint that the run resumes from, and what a resumed run may change

Each mistake is a BadConfig: one paragraph with key, value, reason and what to do.
"""
