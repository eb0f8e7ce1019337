"""Styles in which models give a letter or a place inside the answer tag, and what each is read as.

Options of the letter rows: A green_box, B red_crate, C "He feels sad.", D "A plan to leave". Places of the word rows:
garden, crate, treasure_chest.
"""

OPTIONS = {"A": "green_box", "B": "red_crate", "C": "He feels sad.", "D": "A plan to leave"}
PLACES = ("garden", "crate", "treasure_chest")
CHEST = PLACES[-1]


def _read(read, strictly, *texts):
    """Texts inside the tag, what is read in them, and what the strict reader reads."""
    return [(text, read, strictly) for text in texts]


LETTERS = [
    # bare letters
    *_read("B", "B", "B", "b", " B ", "\nB\n", "B.", "(B)", "(b).", "B)"),
    # wrapped
    *_read("B", None, "[B]", "{B}", "((B))", "**B**", "*B*", "__B__", "***B***.", "**(B)**", "`B`", "```\nB\n```"),
    *_read("B", None, '"B"', "'B'", "\u201cB\u201d", "\u2018B\u2019", "\u00abB\u00bb", "<b>B</b>"),
    *_read("B", None, "<strong>B</strong>", "<letter>B</letter>", "\\boxed{B}", "$\\boxed{B}$", "\\boxed{\\text{B}}"),
    *_read("B", None, "\\(B\\)", "$B$", "\\textbf{B}", "\\mathbf{(B)}"),
    # other characters
    *_read("B", None, "\uff22", "\uff42", "\uff08\uff22\uff09", "\u24b7", "B\u3002", "\u3010B\u3011"),
    *_read("B", None, "\u300cB\u300d", "\u200bB\u200b", "\ufeffB", "B\u200e", "B\u2060."),
    *_read("B", "B", "\u00a0B\u00a0"),
    *_read("B", None, "Option\u00a0B", "\u202f**B**\u202f"),
    # with punctuation behind it
    *_read("B", None, "B,", "B;", "B:", "B!", "B..", "B\u2026"),
    # introduced
    *_read("B", None, "Option B", "option b.", "Option (B)", "Choice B", "Letter: B", "Answer: B", "**Answer:** B"),
    *_read("B", None, "Answer = B", "The answer is B", "The correct answer is (B).", "My final answer: **B**"),
    *_read("B", None, "The best option is option B.", '{"answer": "B"}', "- B", "> B", "\u2192 B"),
    # with the option's own text
    *_read("B", None, "B: red_crate", "B. red_crate", "B) red_crate.", "(B) red crate", "b - Red Crate"),
    *_read("B", None, "B \u2013 the red crate", "**B.** red_crate", "**B. red_crate**", "B (red_crate)"),
    *_read("B", None, "B: \u201cred_crate\u201d", "Option B: red_crate", "B red_crate", "B\nred_crate"),
    *_read("B", None, "red_crate (B)"),
    *_read("C", None, "C: He feels sad", "C. he feels sad."),
    # the text of one option
    *_read("B", None, "red_crate", "Red Crate.", "the red crate", "a red crate", "red-crate", "\\text{red\\_crate}"),
    *_read("C", None, "He feels sad."),
    *_read("D", None, "A plan to leave", "plan to leave"),
    *_read("B", None, "The answer is red_crate."),
    # ambiguous
    *_read(None, None, "A, B", "A or B", "A/B", "A and B", "AB", "B or C?", "A) or B)", "red_crate or green_box"),
    *_read(None, None, "B: green_box", "(B) He feels sad.", "A red_crate", "green_box (B)", "Option B: green_box"),
    *_read(None, None, "B because she saw it there", "B, since nobody moved it", "B: the place where Mia saw it"),
    *_read(None, None, "B or maybe not", "not B", "anything but B", "~~B~~", "<del>B</del>", "I think B"),
    # no option
    *_read(None, None, "Z", "E", "1", "2.", "BB", "B2", "Bob", "\u0411", "\u0412", "\u00df", "", "?", "..."),
    *_read(None, None, "none of them", "N/A", "I don't know", "red", "He feels", "LETTER"),
]

WORDS = [
    *_read(CHEST, CHEST, "treasure_chest", "Treasure Chest", "the treasure chest"),
    *_read(CHEST, CHEST, "in the treasure_chest.", "TREASURE_CHEST!", "treasure  chest"),
    *_read(CHEST, CHEST, "treasure-chest", "**treasure_chest**"),
    *_read("crate", "crate", "*crate*"),
    *_read("crate", None, "_crate_"),
    *_read(CHEST, None, "__treasure_chest__"),
    *_read("crate", "crate", "`crate`", '"crate"', "\u201ccrate\u201d", "(crate)", "[crate]", "\\boxed{crate}"),
    *_read(CHEST, None, "\\boxed{\\text{treasure\\_chest}}"),
    *_read(CHEST, CHEST, "treasure\u00a0chest"),
    *_read(CHEST, None, "treasure\u200b_chest"),
    *_read("crate", "crate", "\ufeffcrate"),
    *_read("crate", None, "cra\u200dte", "\uff43\uff52\uff41\uff54\uff45"),
    *_read("crate", "crate", "<b>crate</b>", "Answer: crate", "The answer is the crate.", "crate (a container)"),
    *_read("crate", "crate", "crate\u3002", "- crate", "crate,"),
    *_read(None, None, "crate or garden", "crate, garden", "treasure_chest in the garden"),
    *_read(None, "crate", "not the crate", "anywhere except the crate", "it isn't the crate"),
    *_read(None, None, "treasure", "chest", "crates", "the kitchen", "B", "PLACE", "", "?!"),
]

# (all that was said, the letter that is read): what stands outside of the tag, or in thoughts, is no answer
WHOLE = [
    ("<answer>B</answer>", "B"),
    ("<ANSWER>B</ANSWER>", "B"),
    ("< answer >B</ answer >", "B"),
    ("Let me see.\n<answer>\nB\n</answer>\nDone.", "B"),
    ("```\n<answer>B</answer>\n```", "B"),
    ("**<answer>B</answer>**", "B"),
    ("<answer>A</answer> No, wait. <answer>B</answer>", "B"),
    ("B", None),
    ("The answer is B.", None),
    ("Answer: B", None),
    ("\\boxed{B}", None),
    ("<answer>B", None),
    ("<answer>B<answer>", None),
    ("B</answer>", None),
    ("<answer></answer> B", None),
    ("&lt;answer&gt;B&lt;/answer&gt;", None),
    ("<option>B</option>", None),
    ("<answer>B</answer> or <answer></answer>", None),
]

# What opens and closes a block of thoughts, in the forms that models use.
THOUGHTS = [
    *(("<think>", "</think>"), ("<THINK>", "</THINK>"), ("<thinking>", "</thinking>"), ("<think>", "</thinking>")),
    *(("<thought>", "</thought>"), ("<thoughts>", "</thoughts>"), ("<reason>", "</reason>")),
    *(("<reasoning>", "</reasoning>"), ("<reflection>", "</reflection>"), ("<analysis>", "</analysis>")),
    *(("<scratchpad>", "</scratchpad>"), ("<seed:think>", "</seed:think>"), ('<think type="long">', "</think>")),
    *(("< think >", "</ think >"), ("[THINK]", "[/THINK]"), ("\u25c1think\u25b7", "\u25c1/think\u25b7")),
    *(("<|START_THINKING|>", "<|END_THINKING|>"), ("<|begin_of_thought|>", "<|end_of_thought|>")),
    *(("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),),
]
