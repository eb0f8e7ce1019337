"""Read what a policy answered.

extraction.py    the answer in the `<answer>` tag: a letter, an option, names, a place
letters.py       letters in a text that point at an option, for the leak guard
thinking.py      separate thoughts from the answer
"""
