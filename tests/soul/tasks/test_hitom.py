"""Hi-ToM: the rules of its stories, and the joint accuracy of its authors."""

from tests.soul.evaluate.finished_samples import scored_by_rule, shown_for_the_set
from tests.soul.samples import HITOM, tagged


def test_joint_accuracy_needs_the_answers_of_all_lower_orders():
    said = {  # story -> its answers by order; B is right
        "one": "BBB",
        "two": "BAB",
        "three": "ABB",
        "four": "BB",  # a limit left out its order 2
        "five": {0: "B", 2: "B"},  # and here its order 1
    }
    samples = []
    for story, answers in said.items():
        for order, letter in answers.items() if isinstance(answers, dict) else enumerate(answers):
            record = {**HITOM, "story": f"1 In story {story}.", "question_order": order}
            samples.append(scored_by_rule("hitom", record, tagged(letter), len(samples)))
    samples.append(scored_by_rule("hitom", {**HITOM, "question_order": None}, tagged("A"), len(samples)))
    assert shown_for_the_set(samples) == {"joint_accuracy_order_1": 2 / 4, "joint_accuracy_order_2": 1 / 3}
