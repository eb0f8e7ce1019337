"""Generate docs/tasks: one page per task, made from the task's own code and its example (`soul.examples`).

    python docs/task_pages.py            # write the pages
    python docs/task_pages.py --check    # write nothing; exit code 1 if a page is out of date

Each page is read from the code or played with it, so it always matches what the code does.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from soul import examples, tasks
from soul.cli.error_border import Parser, reports_errors
from soul.examples.contract import played
from soul.examples.example import Example
from soul.message import Message
from soul.session import Attempt, Session
from soul.suites import soul_v1
from soul.task import Task

FOLDER = Path(__file__).parent / "tasks"
SHOWN_CHARS = 1600  # of a message or a value; the middle of a longer text is left out
EXAMPLES = 20  # rows of an example that are checked for groups
SHOWN_TURNS = 4  # of a seat, at each end
LESSON = "(The judge's critique.)"


def text_block(text: str, kind: str = "text") -> str:
    """A fenced block; the middle of a long text is left out."""
    if len(text) > SHOWN_CHARS:
        text = (
            f"{text[: SHOWN_CHARS // 2]}\n[... {len(text) - SHOWN_CHARS} characters ...]\n{text[-SHOWN_CHARS // 2 :]}"
        )
    fence = "````" if "```" in text else "```"
    return f"{fence}{kind}\n{text}\n{fence}"


def documentation(task: Task[Any]) -> str:
    """The docstring of the task's module."""
    return inspect.cleandoc(importlib.import_module(type(task).__module__).__doc__ or "")


def facts(name: str, task: Task[Any]) -> Iterator[tuple[str, str]]:
    """The rows of the page's overview table: (label, value)."""
    launch = tasks.TASK_FILES[name]
    sets = (
        [set_name for set_name, part in soul_v1.SETS.items() if part.task.startswith("alignx_")]
        if name == "alignx"
        else [name]
    )
    yield "`data_source`", f"`{launch.task}`"
    yield "files of `run_rl.sh`", f"`sim_rl_data/{launch.train}.parquet`, `sim_eval_data/{launch.val}.parquet`"
    yield "evaluation sets", ", ".join(f"`{set_name}`" for set_name in sets)
    if task.set_headline is None:
        metrics = {"headline, the reward": task.headline}
    else:
        metrics = {"headline of a set": task.set_headline, "reward of an episode": task.headline}
    for what, metric in metrics.items():
        better = "" if metric.higher_is_better else " (lower is better)"
        yield what, f"`{metric.name}` from {metric.low:.3g} to {metric.high:.3g}{better}"
        yield "source", metric.source
    calls = [f"{count:.3g} by the {role}" for role, count in task.calls_per_episode.items()]
    calls += [f"{task.calls_per_feedback:.3g} for the feedback"] if task.calls_per_feedback else []
    yield "calls per episode", ", ".join(calls) or "none"
    yield "judge prompts", ", ".join(_prompt_link(prompt.id) for prompt in task.prompts) or "none"
    kinds = _kinds(name, task)
    yield "evaluation broken down by", ", ".join(kinds) or "nothing"
    yield (
        "fields shortened if too long",
        ", ".join(f"`{field}` (keeps its {end})" for field, end in task.cuts) or "none",
    )


def _kinds(name: str, task: Task[Any]) -> list[str]:
    """The kinds of groups that invented rows belong to."""
    example = examples.load(tasks.TASK_FILES[name].task)
    return list(dict.fromkeys(kind for number in range(EXAMPLES) for kind in task.groups(example.row(number))))


def _prompt_link(id: str) -> str:
    return f"[`{id}`](../../agents/soul/tasks/prompts/{id}.txt)"


def row_schema(task: Task[Any]) -> Iterator[str]:
    """The fields of a row."""
    yield "| field | type | if absent | other names |"
    yield "|---|---|---|---|"
    for name, field in task.row_type.model_fields.items():
        yield f"| `{name}` | {_type(field)} | {_absent(field)} | {_aliases(name, field)} |"


def _type(field: FieldInfo) -> str:
    annotation = field.annotation
    plain = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    plain = re.sub(r"Annotated\[([\w.]+), .*?>\)\]", r"\1", plain)  # a validator is not part of the type
    plain = re.sub(r"(?:[a-z_]\w*[.])+", "", plain)
    return f"`{plain}`".replace("|", "\\|")


def _absent(field: FieldInfo) -> str:
    if field.is_required():
        return "an error"
    default = field.default_factory() if field.default_factory else field.default  # type: ignore[call-arg]
    return f"`{default!r}`".replace("|", "\\|")


def _aliases(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    aliases = alias.choices if isinstance(alias, AliasChoices) else [alias] if alias else []
    return ", ".join(f"`{other}`" for other in aliases if other != name)


def prompt_section(task: Task[Any], row: Any) -> Iterator[str]:
    """The first messages that a seat sees, and what feedback adds to them."""
    base = task.prompt(row)
    for message in base:
        yield f"**{message['role']}**\n\n{text_block(message['content'])}"
    changed = [i for i, message in enumerate(task.prompt(row, LESSON)) if message not in base]
    for i in changed:
        yield f"In a refined episode the {base[i]['role']} message ends with:\n\n{text_block(_added(task, row, i))}"


def _added(task: Task[Any], row: Any, position: int) -> str:
    old = task.prompt(row)[position]["content"].splitlines()
    new = task.prompt(row, LESSON)[position]["content"].splitlines()
    return "\n".join(line for line in new if line not in old)


def conversation(messages: Sequence[Message], skip: int) -> str:
    """The turns after a seat's first prompt."""
    turns = [f"{message['role']}: {message['content']}" for message in messages[skip:]]
    if len(turns) > 2 * SHOWN_TURNS:
        turns = [*turns[:SHOWN_TURNS], f"[... {len(turns) - 2 * SHOWN_TURNS} turns ...]", *turns[-SHOWN_TURNS:]]
    return text_block("\n\n".join(turns))


def attempt_section(title: str, attempt: Attempt) -> Iterator[str]:
    """An episode and its verdict."""
    assert attempt.episode is not None and attempt.verdict is not None, attempt.failure
    yield f"### {title}"
    for seat, messages in attempt.episode.seats.items():
        first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
        yield (
            f"Seat `{seat}`, after its first prompt. Why the episode ended: {attempt.episode.ended}.\n\n"
            + conversation(messages, first)
        )
    numbers = {key: round(value, 4) for key, value in sorted(attempt.verdict.metrics.items())}
    verdict = {"reward": round(attempt.verdict.reward, 4), "metrics": numbers}
    yield f"Verdict:\n\n{text_block(json.dumps(verdict, indent=1, ensure_ascii=False), 'json')}"


def example_session(example: Example[Any], row: Any) -> Session:
    """A session whose draft comes from the random player and whose refined episode comes from the oracle."""
    session = asyncio.run(played(example, row, example.random(row, random.Random(3))))
    assert session.refined is not None, session.feedback_failure
    session.refined = asyncio.run(played(example, row, example.oracle(row), refine=False)).draft
    return session


def page(name: str) -> str:
    """The page of one task, named as in `run_rl.sh`."""
    launch = tasks.TASK_FILES[name]
    task, example = tasks.load(launch.task), examples.load(launch.task)
    row = example.row(0)
    session = example_session(example, row)
    assert session.refined is not None
    record = json.dumps({"index": 0, **example.record(0)}, indent=1, ensure_ascii=False)
    parts = [
        f"<!-- Made by docs/task_pages.py. Change the task, not this page. -->\n\n# {name}",
        documentation(task),
        "| | |\n|---|---|\n" + "\n".join(f"| {what} | {value} |" for what, value in facts(name, task)),
        "## Row",
        f"`extra_info` of a record, validated by `{task.row_type.__name__}`. An absent key and a null are the same.",
        "\n".join(row_schema(task)),
        "## First prompt of the policy",
        *prompt_section(task, row),
        "## A complete example",
        "The row and its players are invented (`agents/soul/examples`), and the judge answers by rule: the numbers "
        "show the format and say nothing about people.",
        f"Record:\n\n{text_block(record, 'json')}",
        *attempt_section("Draft, by the random player", session.draft),
        f"### Feedback\n\n{text_block(session.feedback or '')}",
        *attempt_section("Refined, by the oracle", session.refined),
        f"## Run it\n\n{_commands(name)}",
    ]
    return "\n\n".join(parts) + "\n"


def _commands(name: str) -> str:
    task = tasks.TASK_FILES[name].task
    builder = task.split("-")[0].removesuffix("_math").removesuffix("_doc")
    known = (FOLDER.parents[1] / "data" / f"{builder}.py").exists()
    real = f"   # real data: python -m data.{builder} --help" if known else ""
    return (
        f"```bash\nsoul examples {task} --rows 64 --out rows.parquet{real}\n"
        "TRAIN_FILES=rows.parquet VAL_FILES=rows.parquet bash recipe/ditto/run_rl.sh "
        f"{name} data.allow_overlap=true   # one file for both, to try it out\n```"
    )


def index() -> str:
    """The list of all pages."""
    lines = [
        "<!-- Made by docs/task_pages.py. -->\n\n# The tasks of SOUL",
        "`bash run_rl.sh NAME` trains on one of them; several names with commas, `paper` (the paper's ten) or `all` "
        "train on a mixture.",
        "| name | task | headline | range |\n|---|---|---|---|",
    ]
    rows = []
    for name, launch in tasks.TASK_FILES.items():
        task = tasks.load(launch.task)
        what = (inspect.getdoc(type(task)) or "").splitlines()[0]
        ours = " (paper)" if name in soul_v1.PAPER else ""
        metric = task.set_headline or task.headline
        rows.append(f"| [{name}]({name}.md){ours} | {what} | {metric.name} | {metric.low:.2g} to {metric.high:.2g} |")
    return "\n\n".join(lines) + "\n" + "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    """The files of docs/tasks and their content."""
    return {FOLDER / "README.md": index(), **{FOLDER / f"{name}.md": page(name) for name in tasks.TASK_FILES}}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit code."""
    parser = Parser(prog="python docs/task_pages.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with code 1 if a page is out of date")
    check = parser.parse_args(arguments).check
    wanted = pages()
    old = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    extra = [path for path in FOLDER.glob("*.md") if path not in wanted]
    for path in old + extra:
        state = "belongs to no task" if path in extra else "is out of date" if check else "written"
        print(f"{path.relative_to(FOLDER.parents[1])}: {state}")
    if check:
        return int(bool(old or extra))
    FOLDER.mkdir(exist_ok=True)
    for path in old:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
