"""The audit finds each fault of a user, names transcript, turn and rule, and nothing in a perfect user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from soul.drop_in.audit import main, read
from soul.drop_in.faults import RULES, Finding, Transcript, faults

TOLD = """You are Mia Santos, user id mia_9. You want your order W123 cancelled, because you ordered the wrong size by
mistake last night. You are brief. When your goal is reached, write ###STOP###; when transferred, ###TRANSFER###."""


def talk(*texts: str, told: str = TOLD) -> Transcript:
    """A conversation that the user begins."""
    roles = ("user", "assistant") * len(texts)
    messages = tuple({"role": role, "content": text} for role, text in zip(roles, texts, strict=False))
    return Transcript("talk", messages, told)  # type: ignore[arg-type]


PERFECT = talk(
    "hi, i need to cancel an order",
    "Sure. What is your user id, and which order is it?",
    "mia_9, and it's #W123",
    "Order W123 is pending. Shall I cancel it?",
    "yes please",
    "It is cancelled. The refund of $54.20 takes 5 to 7 days. Is there anything else?",
    "no, $54.20 is right. thanks! ###STOP###",
)
FAULTY: list[tuple[str, Transcript, int, str]] = [
    ("stops_too_early", talk("Please cancel my order. ###STOP###"), 0, "not answered anything"),
    ("stops_too_early", talk("Cancel W123", "Shall I cancel it?", "yes ###STOP###"), 2, "waits for an answer"),
    ("stops_too_early", talk("Cancel it", "Let me check that for you.", "ok ###STOP###"), 2, "not finished"),
    ("stops_too_early", talk("Help me", "I cannot.", "###TRANSFER###"), 2, "transferred nobody"),
    ("stops_too_late", talk("Cancel it", "Done.", "thanks ###STOP###", "Bye.", "one more thing"), 4, "ended before"),
    ("stops_too_late", talk("Cancel it", "Done.", "bye", "Bye!", "have a nice day"), 4, "said goodbye before"),
    ("invents_facts", talk("Cancel W123", "Your zip code?", "It's 94110."), 2, "94110"),
    ("invents_facts", talk("My name is Bob, cancel W123"), 0, "Bob"),
    ("reveals_plan", talk("My instructions are to cancel an order."), 0, "My instructions are"),
    ("reveals_plan", talk("cancelled, because you ordered the wrong size by mistake last night"), 0, "ten words"),
    ("speaks_as_assistant", talk("cancel W123", "Done.", "How can I help you today?"), 2, "How can I help"),
    (
        "speaks_as_assistant",
        talk("cancel W123", *["I have found the order that you placed with us yesterday evening."] * 2),
        2,
        "ten words of the assistant",
    ),
    ("repeats_itself", talk("please cancel my order W123", "Which?", "Please cancel my order W123!"), 2, "cancel"),
    ("repeats_itself", talk("no no no no " * 8), 0, "loops"),
    ("says_nothing", talk("cancel it", "Which order?", "<think>W123</think>"), 2, "''"),
]


def test_a_perfect_user_comes_out_clean() -> None:
    assert faults(PERFECT) == []


@pytest.mark.parametrize(("rule", "transcript", "turn", "evidence"), FAULTY, ids=[case[0] for case in FAULTY])
def test_each_fault_is_found_where_it_is(rule: str, transcript: Transcript, turn: int, evidence: str) -> None:
    found = [each for each in faults(transcript) if each.rule == rule]
    assert [each.turn for each in found] == [turn]
    assert evidence in found[0].evidence


def test_every_rule_has_a_fault() -> None:
    assert {rule for rule, *_ in FAULTY} == set(RULES)


@pytest.mark.parametrize(
    "transcript",
    [
        talk("cancel W123", "I transfer you to a human agent.", "###TRANSFER###"),
        talk("cancel W123", "Your zip code?", "I don't know it. ###OUT-OF-SCOPE###"),
        talk("cancel W123", "Your id?", "mia_9 please, as I said", "Your id?", "mia_9 please, as I said"),
        talk("it costs 1,000 dollars, see 99999", told=""),
    ],
    ids=["transferred", "out of scope", "asked again", "nothing is known of the instructions"],
)
def test_what_a_good_user_may_do(transcript: Transcript) -> None:
    assert faults(transcript) == []


def test_the_command_reads_all_forms_and_writes_every_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.jsonl"
    lines = [
        {"messages": PERFECT.messages[:n], "instructions": TOLD} for n in (1, 3, 7)
    ]  # as --keep adds them: only the longest counts
    lines.append({"messages": [{"role": "system", "content": TOLD}, {"role": "user", "content": "My name is Bob"}]})
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = tmp_path / "results.json"
    zip_code = {"role": "tool", "requestor": "assistant", "content": "94110"}  # which the user does not see
    messages = [{"role": "assistant", "content": "Hi!"}, zip_code, {"role": "user", "content": "It's 94110"}]
    tasks, simulation = [{"id": "7", "user_scenario": {"instructions": "Cancel W123."}}], {"id": "s", "task_id": "7"}
    simulation |= {"messages": messages, "trial": 1, "reward_info": {"reward": 1}}
    info = {"environment_info": {"domain_name": "retail"}}
    results.write_text(json.dumps({"info": info, "tasks": tasks, "simulations": [simulation]}))
    assert [(each.task, each.run, each.reward) for each in read(results)] == [("retail_7", "1", 1.0)]
    out = tmp_path / "faults.json"
    assert main([str(kept), str(results), "--json", str(out)]) == 0
    assert [each.name for each in read(kept)] == ["kept.jsonl:3", "kept.jsonl:4"]
    assert json.loads(out.read_text()) == {
        "transcripts": 3,
        "findings": [
            {"transcript": "kept.jsonl:4", **Finding(0, "invents_facts", "Bob")._asdict()},
            {"transcript": "results.json:s", **Finding(1, "invents_facts", "94110")._asdict()},
        ],
    }
    line = next(line for line in capsys.readouterr().out.splitlines() if "invents_facts" in line)
    assert [cell.strip() for cell in line.split("│")[1:-2]] == ["invents_facts", "2", "67", "2"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "talks.jsonl",
            f"{json.dumps({'messages': PERFECT.messages})}\n\n{{}}\n",
            "talks.jsonl, line 3: expected a JSON",
        ),
        ("talks.jsonl", "\n", "talks.jsonl holds no transcript."),
        ("results.json", '{"simulations": []}', "not a results.json of tau2 or tau-USI's file of people"),
    ],
)
def test_what_is_not_a_transcript_is_refused(
    tmp_path: Path, name: str, text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main([str(tmp_path / name)]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
