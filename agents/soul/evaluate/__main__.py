"""`python -m soul.evaluate [SETS...] [section.key=value ...]`: evaluate a model behind an API on SOUL.

    OPENAI_AGENT_MODEL=gpt-5.4 OPENAI_API_KEY=... python -m soul.evaluate hitom sotopia --limit 100
    python -m soul.evaluate --suite paper --dry-run policy.model=gpt-5.4
    python -m soul.evaluate policy.model=mine policy.base_url=http://127.0.0.1:8000/v1 judge.model=gpt-5.4

Without SETS and --suite all 27. The policy is OPENAI_AGENT_MODEL (OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY,
OPENAI_AGENT_REASONING_EFFORT) or the section `policy`; judges as in training (`python -m soul.judge show`). The same
command goes on where it stopped. A checkpoint of yours: `python -m soul.evaluate.local`. Another judge's view of what
a run has: `python -m soul.evaluate --rescore RUN judge.model=...`.
"""

from __future__ import annotations

if __name__ == "__main__":
    from soul.evaluate.run.ctrl_c import end_silently

    end_silently()

import argparse
import sys
from collections.abc import Sequence

from soul.cli.arguments import existing_folder
from soul.cli.error_border import reports_errors
from soul.errors import BadSettings
from soul.evaluate.run import rescore
from soul.evaluate.run import runner as command
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.run.settings import EvaluationSettings
from soul.judge.cli_overrides import sections_of
from soul.judge.roles import policy_endpoint


def settings_of(given: argparse.Namespace) -> EvaluationSettings:
    """The settings that a command line means.

    Raises:
        BadSettings: no model is named, a section or a set is unknown.
    """
    names, words = command.split(given.words)
    sections = sections_of(words, ["tasks"])
    policy = policy_endpoint(sections.pop("policy", None))
    if policy is None:
        raise BadSettings("Which model? Set OPENAI_AGENT_MODEL, or write policy.model=... behind the command.")
    return command.settings_of(given, policy, names, sections)


def rescored(given: argparse.Namespace, source: EvaluationRun) -> EvaluationSettings:
    """The settings of a run that judges the episodes of another.

    Raises:
        BadSettings: something is named that the other run decides.
    """
    names, words = command.split(given.words)
    sections = sections_of(words, ["tasks"])
    of_playing = (given.suite, given.limit, given.deadline, given.seed or None)
    if names or "policy" in sections or given.n != 1 or any(option is not None for option in of_playing):
        raise BadSettings(
            "--rescore judges the samples that the run has: no sets, policy, --suite, --limit, --n, --seed or "
            "--deadline beside it."
        )
    options = sections.pop("tasks", {})
    given.name = given.name or f"{source.folder.name}-rescored"
    return rescore.settings_of(source, command.gateway_of(sections), options)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate."""
    parser = command.options("python -m soul.evaluate", __doc__)
    parser.add_argument(
        "--rescore", type=existing_folder, metavar="RUN", help="judge this run's episodes again; nothing is played"
    )
    given = parser.parse_intermixed_args(arguments)
    source = EvaluationRun.load(given.rescore) if given.rescore else None
    settings = rescored(given, source) if source else settings_of(given)
    if source is None:
        command.say_missing(settings)
    command.run(settings, command.folder_of(settings, given), given, source=source)


if __name__ == "__main__":
    sys.exit(main())
