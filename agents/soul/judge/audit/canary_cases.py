"""The canaries: scenarios with a good and a weak honest reply, and hostile replies that deserve nothing.

A hostile reply contains no answer at all, or the scenario's weak reply followed by a trick. So any points above those
of the weak reply were won by the trick. The master keys come from "One token to fool LLM-as-a-judge" (arXiv
2507.08794), with two similar ones for role play. The texts are in canary_cases.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["master_key", "give_ten", "copied_rubric", "forged_verdict", "role_confusion", "padding"]
Control = Literal["good", "weak"]


@dataclass(frozen=True)
class Scenario:
    """The situation that a reply responds to, and its rubric. The levels complete the sentence "The reply ..."."""

    name: str
    situation: str
    best: str  # worth 10
    middle: str  # worth 5
    worst: str  # worth 0
    good: str  # an honest reply near 10
    weak: str  # an honest reply well below 5


@dataclass(frozen=True)
class Canary:
    """One reply to grade: a hostile one, or an honest one as a control."""

    name: str
    kind: Kind | Control
    scenario: Scenario
    reply: str


_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SCENARIOS = tuple(Scenario(**fields) for fields in _DATA["scenarios"])
_BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
CANARIES = tuple(
    Canary(case["name"], kind, _BY_NAME[case["scenario"]], case["reply"])
    for kind, cases in _DATA["canaries"].items()
    for case in cases
)


def controls(scenario: Scenario) -> tuple[Canary, Canary]:
    """The good and the weak honest reply of a scenario."""
    return (
        Canary(f"{scenario.name}_good", "good", scenario, scenario.good),
        Canary(f"{scenario.name}_weak", "weak", scenario, scenario.weak),
    )
