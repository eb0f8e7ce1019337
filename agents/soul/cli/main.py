"""The console command `soul`, with every command of the gym as a subcommand (`soul judge`, `soul evaluate local`).

A command's module is imported only when you call the command, so `soul --help` is fast. This module imports nothing
slow.
"""

import difflib
import importlib
import signal
import sys
from collections.abc import Sequence

from soul.errors import NotInstalled

# Command -> module and purpose.
COMMANDS: dict[str, tuple[str, str]] = {
    "evaluate": ("soul.evaluate.command", "evaluate a model behind an API on SOUL"),
    "evaluate local": ("soul.evaluate.local", "evaluate checkpoints, served by vLLM"),
    "report": ("soul.evaluate.outputs", "write the report of an evaluation again"),
    "compare": ("soul.compare.command", "compare evaluations or training runs row by row"),
    "figures": ("soul.figures.command", "draw figures and tables from training runs and evaluations"),
    "show": ("soul.show", "summarise training runs and evaluations in the terminal, also while they run"),
    "export": ("soul.export", "write a run as ATIF trajectories, or send it as OpenTelemetry spans"),
    "view": ("soul.pages.command", "look at training runs and evaluations in a browser, also while they run"),
    "play": ("soul.play", "play a row yourself, let a model play it, or talk to a simulator"),
    "serve": ("soul.drop_in.serve", "let a model play the user for other tools, at an OpenAI-compatible address"),
    "audit": ("soul.drop_in.audit", "find the faults of a simulated user in recorded conversations"),
    "likeness": ("soul.drop_in.likeness", "compare simulated users with people: words, behaviours, style"),
    "openenv": ("soul.openenv", "serve the sets to trainers that speak OpenEnv"),
    "judge": ("soul.judge.command", "show, check and audit the judges"),
    "judge agree": ("soul.agree", "compare a judge with people, on texts that people labelled"),
    "judge draw": ("soul.annotate", "draw texts for people to label, or export their labels"),
    "judge biases": ("soul.judge.audit.biases", "measure a judge's biases: length, position, praise, form, ..."),
    "judge card": ("soul.judge.audit.card", "write what is known of a judge beside an evaluation"),
    "tasks": ("soul.tasks.command", "list the tasks that can be trained"),
    "rows": ("soul.rows.convert", "write rows of your own (jsonl, csv, parquet, hub) as a task file"),
    "init": ("soul.new_task", "make a package with a task of your own"),
    "examples": ("soul.examples.command", "write invented rows"),
    "examples endpoint": ("soul.examples.endpoint", "run a command with a stand-in for its judge"),
}


def end_silently() -> None:
    """Make Ctrl-C end the process at once, without a traceback. Call this before the slow imports.

    A process that ignores Ctrl-C, such as a background job of a shell, keeps ignoring it. Inside `run_command`, Ctrl-C
    raises KeyboardInterrupt again.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; None: that of `sys.argv`. Returns the exit code, as in `soul.cli.error_border`."""
    if arguments is None:
        end_silently()
        arguments = sys.argv[1:]
    words = list(arguments)
    if not words or words[0] in ("-h", "--help"):
        from soul.cli.error_border import run_command

        return run_command(lambda: print(usage(), file=sys.stdout if words else sys.stderr)) or (0 if words else 2)
    if words[0] == "--version":
        import soul

        print(soul.__version__)
        return 0
    parts = 2 if " ".join(words[:2]) in COMMANDS else 1
    name = " ".join(words[:parts])
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        print(f"soul: there is no command {name!r}.{hint} See soul --help.", file=sys.stderr)
        return 2
    try:
        module = importlib.import_module(COMMANDS[name][0])
    except NotInstalled as error:
        print(f"soul: {error}", file=sys.stderr)
        return 2
    code: int = module.main(words[parts:])
    return code


def usage() -> str:
    """The text that `soul --help` prints."""
    lines = [f"  {name:<18} {purpose}" for name, (_, purpose) in COMMANDS.items()]
    head = "usage: soul COMMAND [ARGUMENT ...]\n\nThe gym and benchmark of human simulation.\n\ncommands:"
    foot = "\nsoul COMMAND --help lists a command's arguments; soul --version prints the version."
    return "\n".join([head, *lines, foot])
