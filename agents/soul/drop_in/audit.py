"""`soul audit TRANSCRIPTS ...`: find the faults of a simulated user, by rule, in recorded conversations.

    soul audit talks.jsonl results.json --json faults.json

A file is what `soul serve --keep` writes; or JSON lines with `messages`, whose `user` is the person, and with what the
person was told (`instructions`, or a first `system` message); or a results.json of tau2, or tau-USI's people. The table
counts the turns that break each rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.cli.arguments import existing_file, output_file
from soul.cli.error_border import Parser, reports_errors
from soul.drop_in.faults import RULES, Finding, Transcript, faults
from soul.errors import SoulError
from soul.files.whole_file import write_whole
from soul.message import Message
from soul.metrics.intervals import mean_of
from soul.table import NONE, Table, terminal

_TASK = re.compile(r"[a-z]+_\d+(?=_|\Z)")  # of an id such as airline_3_ann2
_COMMAND = re.compile(r"\\(?:tau |reward)|\s*/stop\s*\Z|.*<\|(?:canvas|highlight|survey)\|>", re.S)  # in tau-USI
_WRONG = (ValueError, KeyError, TypeError, AttributeError)  # what a record of another form raises


class BadTranscript(SoulError):
    """A file does not hold transcripts."""


def read(path: Path) -> list[Transcript]:
    """The transcripts of a file, without those that a longer one continues: `--keep` adds one for each turn.

    Raises:
        BadTranscript: the message names file, line and remedy.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        found = [_line(path, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    else:
        try:
            found = [_transcript(f"{path.name}:{name}", record) for name, record in _records(json.loads(text))]
        except _WRONG as error:
            known = "a results.json of tau2 or tau-USI's file of people"
            raise BadTranscript(f"{path} is not {known}: {error!r}. Pass one, or JSON lines.") from None
    begun = {
        json.dumps([t.task, t.run, t.instructions, *t.messages[:n]]) for t in found for n in range(1, len(t.messages))
    }
    return [t for t in found if json.dumps([t.task, t.run, t.instructions, *t.messages]) not in begun]


def _line(path: Path, number: int, line: str) -> Transcript:
    try:
        return _transcript(f"{path.name}:{number}", json.loads(line))
    except _WRONG:
        needed = "a JSON object with `messages`, a list in which each has a `role` and a `content`"
        raise BadTranscript(f"{path}, line {number}: expected {needed}. Correct the line, or leave it out.") from None


def _transcript(name: str, record: Mapping[str, Any]) -> Transcript:
    given = record.get("messages") or record.get("turns") or record["conversation"]
    system = "\n".join(message["content"] for message in given if message["role"] == "system")
    told = record.get("instructions") or record.get("task_description") or system
    instance = str(record.get("instance_id", ""))
    task = found[0] if (found := _TASK.match(instance)) else instance
    messages: list[Message] = [
        {"role": message["role"], "content": message["content"]}
        for message in given  # the person does not see the results of the assistant's tools (tau2)
        if message["role"] != "system" and message.get("content") and message.get("requestor") != "assistant"
        if not _COMMAND.match(message["content"])
    ]
    run, reward = str(record.get("trial", instance[len(task) :])), record.get("reward")
    reward = None if reward is None else float(reward)
    return Transcript(name, tuple(messages), told, task, run, reward)


def _records(results: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if "simulations" not in results:  # tau-USI: by id
        yield from ((name, {"instance_id": name, **each}) for name, each in results.items() if each.get("keep", True))
        return
    domain = results["info"]["environment_info"]["domain_name"]
    told = {task["id"]: json.dumps(task["user_scenario"], ensure_ascii=False) for task in results["tasks"]}
    for each in results["simulations"]:
        record = {"messages": each["messages"], "instructions": told[each["task_id"]], "trial": each.get("trial", 0)}
        reward = (each.get("reward_info") or {}).get("reward")
        yield each["id"], record | {"instance_id": f"{domain}_{each['task_id']}", "reward": reward}


def table(found: Sequence[tuple[str, Sequence[Finding]]]) -> Table:
    """One line for each rule: transcripts that break it, their share with its 95 % interval, turns, and the first."""
    lines = []
    for rule in RULES:
        broken = [(name, fault) for name, findings in found for fault in findings if fault.rule == rule]
        names = {name for name, _ in broken}
        share = mean_of([float(name in names) for name, _ in found], (0.0, 1.0))
        ends = f" [{100 * share.interval[0]:.0f}, {100 * share.interval[1]:.0f}]" if share.interval else ""
        first = next((f"{name} turn {fault.turn}: {fault.evidence[:60]}" for name, fault in broken), NONE)
        lines.append([rule, str(len(names)), f"{100 * share.mean:.0f}{ends}", str(len(broken)), first])
    notes = [f"{len(found)} transcripts. [ ]: 95 % interval. --json FILE writes every finding."]
    return Table(["rule", "transcripts", "share %", "turns", "first"], lines, notes=notes, words=frozenset({4}))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul audit", description=__doc__)
    parser.add_argument("files", type=existing_file, nargs="+", metavar="TRANSCRIPTS")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write every finding to this file")
    given = parser.parse_args(arguments)
    found = [(each.name, faults(each)) for file in given.files for each in read(file)]
    if not found:
        raise BadTranscript(
            f"{given.files[0]} holds no transcript. A line needs `messages`, each with a role and a content."
        )
    terminal().print(table(found).rich("Faults of the user"))
    if given.json:
        findings = [{"transcript": name, **fault._asdict()} for name, each in found for fault in each]
        write_whole(given.json, json.dumps({"transcripts": len(found), "findings": findings}, indent=1) + "\n")
