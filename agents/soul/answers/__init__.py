"""Read what a policy answered.

extraction.py    the answer in the `<answer>` tag: a letter, an option, names, a place
thinking.py      separate thoughts from the answer
"""
