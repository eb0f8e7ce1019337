"""`soul play TASK [section.key=value ...]`: play a row of a task in the terminal, or let a model play it.

    soul play hitom --judge http://127.0.0.1:8001/v1 judge.model=mine judge.api_key_env=none
    soul play sotopia --talk --policy http://127.0.0.1:8000/v1 policy.model=mine --rows sotopia.parquet --row 3

You play the policy; if policy.model is set, that model does. With --talk you play its partner, so that you talk to a
trained simulator turn by turn. The settings are those of `soul evaluate`, and no endpoint is asked that they or the
environment do not name. --policy URL stands for policy.base_url=URL, --judge URL for judge.base_url=URL.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from soul.cli.arguments import existing_file, non_negative_int, output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.playground import KEPT, PARTNER, Player, Playground

POLL_S = 0.05
console = Console()


def show(text: str, style: str = "") -> None:
    """Print a text without the control characters that a model may have written."""
    plain = "".join(character for character in text if character.isprintable() or character in "\n\t")
    console.print(Text(plain, style), soft_wrap=True)


def ask(question: str) -> str:
    """The line that is typed; "" at the end of the input."""
    show(f"\n{question}", "bold")
    return sys.stdin.readline().rstrip("\n")


def show_news(state: dict[str, Any], printed: Counter[tuple[str, str]]) -> None:
    """Print what one side has heard since the last call, and the verdict once there is one."""
    for attempt in ("draft", "refined"):
        for agent, messages in state.get(attempt, {}).get("agents", {}).items():
            if (agent == PARTNER) == (state["player"] == "talk"):
                for message in messages[printed[attempt, agent] :]:
                    if message["role"] != "assistant" or state["player"] == "endpoint":  # others were typed just now
                        show(f"\n[{attempt}, {agent}: {message['role']}]\n{message['content']}")
                printed[attempt, agent] = len(messages)
    if state["turn"] not in ("refine", "done"):
        return
    scores = state[state["attempt"]]
    if scores.get("reward") is not None:
        metrics = ", ".join(f"{name} {value:g}" for name, value in scores["metrics"].items())
        show(f"\nReward {scores['reward']:g} ({metrics})", "bold magenta")
    for failure in filter(None, (scores.get("failure"), state.get("feedback_failure"))):
        show(f"\nFailure ({failure['stage']}, {failure['cause']}): {failure['detail']}", "bold red")
    last = f"Feedback: {state['feedback']}" if state["turn"] == "refine" else f"Right answer: {state.get('target')}"
    if state["turn"] == "refine" or state.get("target"):
        show(last, "yellow")


def play(ground: Playground, state: dict[str, Any]) -> None:
    """Play a session to its end, and keep what the person wants to keep."""
    session, printed = state["session"], Counter[tuple[str, str]]()
    while True:
        show_news(state, printed)
        if state["turn"] == "person":
            state = ground.say(session, ask(f"Your turn ({state['agent']}):"))
        elif state["turn"] == "refine" and ask("Refine? [y/N]").lower() == "y":
            state = ground.refine(session)
        elif state["turn"] == "model":
            time.sleep(POLL_S)
            state = ground.state(session)
        else:
            break
    for kind in KEPT:
        if ask(f"Keep the {kind}? [y/N]").lower() == "y":
            show(f"Added to {ground.keep(session, kind)['file']}.")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul play", description=__doc__)
    parser.add_argument("task", metavar="TASK")
    parser.add_argument("settings", nargs="*", help="section.key=value")
    parser.add_argument("--policy", metavar="URL", help="address of the model that plays (with policy.model=NAME)")
    parser.add_argument("--judge", metavar="URL", help="address of the judge and, if not set, of partner and others")
    parser.add_argument("--rows", type=existing_file, metavar="FILE", help="its rows; default: invented rows")
    parser.add_argument("--row", type=non_negative_int, default=0, help="number of the row, from 0")
    parser.add_argument("--talk", action="store_true", help="play the partner of the policy")
    parser.add_argument("--keep", type=output_folder, default=Path("outputs/play"), metavar="FOLDER")
    given = parser.parse_args(arguments)
    urls = [f"{role}.base_url={url}" for role, url in (("policy", given.policy), ("judge", given.judge)) if url]
    with closing(Playground.from_arguments({given.task: given.rows}, [*given.settings, *urls], given.keep)) as ground:
        show(ground.notice(given.task), "bold yellow")
        player: Player = "talk" if given.talk else "endpoint" if ground.policy else "me"
        play(ground, ground.start(given.task, given.row, player))
