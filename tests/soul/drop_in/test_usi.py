"""The User-Sim Index is what the authors' code gives for the same files and phrases of our own.

The numbers are those of compute_all_with_variance in agents/tau_usi/usi_metric.py, sunnweiwei/OdysSim, commit df47a21.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from soul.drop_in.audit import BadTranscript, read
from soul.drop_in.usi import PARTS, usi
from soul.errors import BadSettings

UTILS = r"""POLITE_PATTERNS = re.compile("please|thank"); EMDASH_RE = re.compile("—"); PIVOT_RE = re.compile("instead")
ACK_ONLY_RE = re.compile("^(ok|yes)$"); CERTAINTY_RE = re.compile("sure|never"); INFO_Q_RE = re.compile(r"\?")
UNCERTAINTY_RE = re.compile("maybe|" "not sure"); EMOTION_PATTERNS = re.compile("angry")
PUSHBACK_Q_RE = re.compile("already"); CLARIFY_Q_RE = re.compile("mean|which"); ID_CONFUSE_RE = re.compile("your order")
ACCUSATION_RE = re.compile("fault|wrong"); ID_DENSITY_RE = re.compile(r"\w*\d{3}\w*")
_AGENT_MARKUP_RE = re.compile("<function=.*?</function>", re.DOTALL)"""
TURNS = r"""hi, my order W123456 is wrong|Please cancel it — thank you.|ok|I already told you my id is mia_li_3668|yes
|Which one do you mean?|not sure, maybe the blue one instead|How much is it?|this is your fault and i am angry
|I would like to return your order 55512, please.|i never got it <function=x>\n1</function>|I'm sure it was 9 dollars"""
SAID = [turn.strip().replace(r"\n", "\n") for turn in TURNS.split("|")]
# of the authors' code, for PARTS: runs of a simulator beside people; 0: people beside people
RECORDED = {
    0: (73.358764, 86.048246, 77.081128, 81.354363, 60.000000, 75.568500),
    1: (75.234309, 86.687980, 71.689950, 72.559631, 65.000000, 74.234374),
    2: (77.113596, 87.959366, 70.815717, 80.827141, 50.000000, 73.343164),
}


def spoken(first: int, step: int, length: int) -> list[dict[str, str]]:
    turns = [{"role": "user", "content": SAID[(first + step * n) % len(SAID)]} for n in range(length)]
    return [message for turn in turns for message in (turn, {"role": "assistant", "content": "Noted."})]


def records(runs: int) -> dict[str, dict[str, object]]:
    """Runs of a simulator; 0: three annotators, as in tau_bench_tasks_unified.json, with one who was not kept."""
    found: dict[str, dict[str, object]] = {}
    for at, task in product(range(1, runs + 1), range(1, 8)):
        said = [*spoken(3 * task + at, 5, 4 + at), {"role": "user", "content": "###STOP###"}]
        found[f"retail_{task}_{at}"] = {"conversation": said, "reward": float((task + at) % 2)}
    for task, (at, batch) in product(range(0 if runs else 6), enumerate(("", "_ann2", "_ann3"))):
        said = [{"role": "user", "content": "\\tau retail 1"}, *spoken(task + 5 * at, 1 + at, 3 + (task + at) % 4)]
        reward, keep = float((task * (at + 2)) % 3 > 0), (task, at) != (2, 1)
        found[f"retail_{task}{batch}"] = {"conversation": said, "reward": reward, "keep": keep}
    return found


def test_the_numbers_are_those_of_the_authors_code(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text(UTILS)
    known = {f"retail_{task}": task / 6 for task in range(8)}
    (tmp_path / "tau_usi_difficulty.json").write_text(json.dumps({"difficulty": known}))
    (tmp_path / "people.json").write_text(json.dumps(records(0)))
    for runs in (1, 2):
        lines = [json.dumps({"instance_id": name, **each}) for name, each in records(runs).items()]
        (tmp_path / "simulated.jsonl").write_text("\n".join(lines))
        found, between = usi(read(tmp_path / "simulated.jsonl"), read(tmp_path / "people.json"), tmp_path)
        assert [found[part].mean for part in PARTS] == pytest.approx(RECORDED[runs], abs=1e-6)
        assert [between[part].mean for part in PARTS] == pytest.approx(RECORDED[0], abs=1e-6)
        assert all(each.interval and each.interval[0] < each.mean < each.interval[1] for each in found.values())
    with pytest.raises(BadTranscript, match="no task of the USI in common"):
        usi([], read(tmp_path / "people.json"), tmp_path)
    (tmp_path / "utils.py").write_text("PIVOT_RE = re.compile('instead')")
    with pytest.raises(BadSettings, match="_AGENT_MARKUP_RE.*Pass agents/tau_usi of a clone"):
        usi([], [], tmp_path)
