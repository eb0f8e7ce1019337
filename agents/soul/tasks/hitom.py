"""HiToM: nested beliefs (orders 0 to 4) in stories with deception and with public and private talk (He et al., 2024).

One turn: a letter in `<answer>`, exact match.
"""

from collections.abc import Mapping, Sequence

from soul.one_turn import LetterTask, parse_options, with_letter
from soul.prompts import load_prompt
from soul.task_types import GroupKey, Metric, NotBlank, Row

PROMPT = load_prompt("hitom/policy")


class HiToMRow(Row):
    """One question about one story."""

    story: NotBlank
    question: NotBlank
    choices: NotBlank  # "A. green_box, B. red_crate, ..."
    correct_answer: NotBlank  # the text of the right option
    deception: bool | None = None
    story_length: int | None = None  # chapters, 1-3
    question_order: int | None = None  # 0-4
    extra_info: str = ""


class HiToM(LetterTask[HiToMRow]):
    """Where does Ava think that Ben thinks the tomato is?"""

    name = "hitom"
    version = 3  # 3: the rule that telling others something does not change one's own belief
    row_type = HiToMRow
    gold_field = "correct_answer"
    headline = Metric("accuracy", source="paper, section 4 (Theory of Mind) and table 1")
    critic = load_prompt("choice/critique_of_a_mind_reader", 3)

    def render(self, row: HiToMRow) -> str:
        extra = f"{row.extra_info.strip()}\n\n" if row.extra_info.strip() else ""
        return PROMPT.fill(story=row.story, extra=extra, question=row.question, choices=row.choices)

    def options(self, row: HiToMRow) -> Mapping[str, str]:
        return parse_options(row.choices)

    def reference(self, row: HiToMRow) -> str:
        return row.correct_answer

    def target(self, row: HiToMRow) -> str:
        return with_letter(self.gold(row), self.options(row))

    def group_keys(self, row: HiToMRow) -> Sequence[GroupKey]:
        return [GroupKey.from_text("story", row.story)]

    def groups(self, row: HiToMRow) -> Mapping[str, str]:
        known = {"order": row.question_order, "chapters": row.story_length}
        deception = {None: {}, True: {"deception": "yes"}, False: {"deception": "no"}}[row.deception]
        return {**{kind: str(value) for kind, value in known.items() if value is not None}, **deception}

    def part(self, row: HiToMRow) -> str:
        return "" if row.question_order is None else f"order_{row.question_order}"
