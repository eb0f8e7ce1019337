"""Readable names for kinds and values of groups: records hold codes such as "ood" or "first_order_no_tom"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KINDS = {
    "access": "what the person in question heard",  # FANToM
    "books": "book of the scene",  # CoSER
    "chapters": "chapters of the story",  # Hi-ToM
    "deception": "characters lie to each other",
    "document": "kind of document",  # SimArena
    "environment": "source of the scenario",  # Sotopia
    "order": "order of belief",  # FANToM, Hi-ToM
    "position": "character of the policy",  # Sotopia
    "question": "kind of question",  # FANToM, ParaToMi
    "relationship": "relationship of the two",  # Sotopia
    "turn of prism": "turn of the PRISM conversation",  # UserLLM
    "user known by": "what is known about the user",  # AlignX
}
VALUES: Mapping[str, Mapping[str, str]] = {
    "access": {"accessible": "all of it", "inaccessible": "missed a part"},
    "books": {"id": "also in the training data (id)", "ood": "not in the training data (ood)"},
    "dimension": {"1": "social (1)", "2": "interpersonal (2)", "3": "narrative (3)"},  # TwinVoice
    "position": {"agent1": "speaks first (agent1)", "agent2": "speaks second (agent2)"},
    "question": {
        "belief multiple-choice": "belief, multiple choice",
        "belief binary": "belief, yes or no",
        "answerability list": "who can answer, list",
        "answerability binary": "who can answer, yes or no",
        "info_accessibility list": "who knows the information, list",
        "info_accessibility binary": "who knows the information, yes or no",
        "first_order_tom": "first-order belief, needs theory of mind",
        "first_order_no_tom": "first-order belief, needs none",
        "second_order_tom": "second-order belief, needs theory of mind",
        "second_order_no_tom": "second-order belief, needs none",
        "memory": "memory: where it was first",
        "reality": "reality: where it is now",
    },
    "source": {"commonsense_qa": "CommonsenseQA", "natural_questions": "Natural Questions", "prism": "PRISM"},
}


def kind_name(kind: str) -> str:
    """The name of a kind of groups."""
    return KINDS.get(kind, kind)


def value_name(kind: str, value: str) -> str:
    """The name of a value; without an entry in VALUES, the value itself with spaces for underscores."""
    return VALUES.get(kind, {}).get(value) or value.replace("_", " ")


def names_of(groups: Iterable[Mapping[str, str]]) -> dict[str, tuple[str, dict[str, str]]]:
    """For the page's script: kind -> its name, and the names of all its values in these groups."""
    names: dict[str, tuple[str, dict[str, str]]] = {}
    for sample_groups in groups:
        for kind, value in sample_groups.items():
            _, values = names.setdefault(kind, (kind_name(kind), {}))
            values[value] = value_name(kind, value)
    return names
