"""`soul evaluate [SETS...] [section.key=value ...]`: evaluate a model behind an API on SOUL.

    OPENAI_AGENT_MODEL=gpt-5.4 OPENAI_API_KEY=... soul evaluate hitom sotopia --limit 100
    soul evaluate --suite paper --dry-run policy.model=gpt-5.4
    soul evaluate policy.model=mine policy.base_url=http://127.0.0.1:8000/v1 judge.model=gpt-5.4

Without SETS and --suite, the command evaluates all 27 sets. The policy is OPENAI_AGENT_MODEL (OPENAI_AGENT_BASE_URL,
OPENAI_AGENT_API_KEY, OPENAI_AGENT_REASONING_EFFORT) or the section `policy`. The judges are those of training; `soul
judge show` lists them. The same command resumes a stopped run. To evaluate a checkpoint of your own, use `soul
evaluate local`. To score a finished run with another judge: `soul evaluate --rescore RUN judge.model=...`.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from soul.cli.arguments import existing_folder
from soul.cli.error_border import reports_errors
from soul.errors import BadSettings
from soul.evaluate import runner
from soul.evaluate.run import rescore
from soul.evaluate.run.options import RunOptions, parser
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.run.settings import EvaluationSettings
from soul.judge.roles import policy_endpoint
from soul.validation_errors import setting_problem


def settings_of(options: RunOptions) -> EvaluationSettings:
    """The settings of an evaluation. Raises BadSettings if it names no model, or an unknown section or set."""
    policy = policy_endpoint(options.sections.get("policy"))
    if policy is None:
        raise BadSettings("Which model? Set OPENAI_AGENT_MODEL, or add policy.model=... to the command.")
    return runner.settings_of(options, policy)


def rescored(options: RunOptions, source: EvaluationRun) -> EvaluationSettings:
    """The settings of a run that judges the episodes of `source` again.

    Raises:
        BadSettings: an option is given that `source` determines, or a value is impossible.
    """
    played = [section for section in ("policy", "partner", "environment") if section in options.sections]
    fixed = (options.suite, options.limit, options.deadline_s, options.seed or None)
    if played or options.sets or options.n != 1 or any(value is not None for value in fixed):
        raise BadSettings(
            "--rescore judges the samples of the run and plays nothing, so it takes judge.*, feedback.* and tasks.*, "
            "and no sets, --suite, --limit, --n, --seed, --deadline, policy.*, partner.* or environment.*."
        )
    try:
        return rescore.settings_of(source, runner.gateway_of(options.sections), options.sections.get("tasks", {}))
    except ValidationError as error:
        raise BadSettings(setting_problem(error)) from None


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run `soul evaluate`."""
    command_line = parser("soul evaluate", __doc__)
    command_line.add_argument(
        "--rescore", type=existing_folder, metavar="RUN", help="judge this run's episodes again; nothing is played"
    )
    given = command_line.parse_args(arguments)
    options = RunOptions.from_arguments(given)
    if given.rescore is None:
        source, settings = None, settings_of(options)
        runner.print_missing_sets(settings)
    else:
        source = EvaluationRun.load(given.rescore)
        settings = rescored(options, source)
        options = replace(options, name=options.name or f"{source.folder.name}-rescored")
    runner.run(settings, runner.folder_of(settings, options), options, source=source)
