"""List the tasks that can be trained, yours among them.

    soul tasks

`soul evaluate` takes the same names.
"""

from collections.abc import Sequence

from soul import tasks
from soul.cli.error_border import Parser, reports_errors


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the names."""
    Parser(prog="soul tasks", description=__doc__).parse_args(arguments)
    print("\n".join(dict.fromkeys([*tasks.TASK_FILES, *tasks.registered()])))
