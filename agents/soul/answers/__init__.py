"""Read what a policy answered.

extraction.py    the answer in the `<answer>` tag: a letter, an option, names, a place
forms.py         the form that a prompt asks for, and what an attempt lacks of it
thinking.py      separate thoughts from the answer
"""
