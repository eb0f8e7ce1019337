"""How models write and check training items, so that nothing is asked twice and every drop has a reason.

roles      which model plays drafter, filter, goal writer and intent writer
journal    what a stage has been answered: one line an item, which survives kill -9
stage      ask for an answer, check it by rule, ask once more, and keep or drop the item
report     an HTML page with kept and dropped items beside their sources
"""
