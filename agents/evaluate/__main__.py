"""`python -m agents.evaluate [SETS...] [section.key=value ...]`: evaluate a model behind an API on SOUL.

    OPENAI_AGENT_MODEL=gpt-5.4 OPENAI_API_KEY=... python -m agents.evaluate hitom sotopia --limit 100
    python -m agents.evaluate policy.model=mine policy.base_url=http://127.0.0.1:8000/v1 judge.model=gpt-5.4

Without SETS all 27. The policy is OPENAI_AGENT_MODEL (OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY,
OPENAI_AGENT_REASONING_EFFORT) or the section `policy`; judges as in training (`python -m agents.judge show`). The same
command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.errors import BadSettings, SoulError
from agents.evaluate import engine, results, table
from agents.evaluate.journal import Journal
from agents.evaluate.progress import Progress
from agents.evaluate.settings import EvaluationSettings, choose_sets, items
from agents.judge import GatewaySettings
from agents.judge.roles import policy_endpoint
from agents.judge.words import sections_of

USER_ERROR = 2
console = Console(width=max(120, Console().width))


def settings_of(given: argparse.Namespace) -> EvaluationSettings:
    """The settings that a command line means.

    Raises:
        BadSettings: no model is named, a section or a set is unknown.
    """
    names = [word for word in given.words if "=" not in word]
    sections = sections_of([word for word in given.words if "=" in word])
    policy = policy_endpoint(sections.pop("policy", None))
    if policy is None:
        raise BadSettings("Which model? Set OPENAI_AGENT_MODEL, or write policy.model=... behind the command.")
    return EvaluationSettings(
        policy=policy,
        gateway=GatewaySettings.of(sections),
        sets=choose_sets(names, given.data),
        limit=given.limit,
        n=given.n,
        seed=given.seed,
        deadline_s=given.deadline,
    )


def run(settings: EvaluationSettings, out: Path, name: str, retry_failed: bool) -> Path:
    """Evaluate, and write what came of it.

    Returns:
        The run's folder.
    """
    folder = settings.folder(out, name)
    journal = Journal(folder)
    try:
        (folder / "settings.json").write_text(json.dumps(settings.identity(), indent=1))
        wanted = items(settings)
        todo = [item for item in wanted if not journal.has(item.key, item.stamp, retry_failed)]
        keys = {item.key for item in wanted} - {item.key for item in todo}
        known = [journal.samples[key] for key in keys]
        console.print(f"{settings.policy.name}: {len(known):,} samples are there, {len(todo):,} to take; {folder}")
        counts = Counter(item.set for item in wanted)
        try:
            with Progress(console, counts, known) as progress:
                asyncio.run(engine.evaluate(settings, todo, journal, folder, progress.add))
        finally:
            report([journal.samples[item.key] for item in wanted if item.key in journal.samples], settings, folder)
    finally:
        journal.close()
    return folder


def report(samples: list[dict[str, Any]], settings: EvaluationSettings, folder: Path) -> None:
    """Write results.json and table.md, and print the table."""
    found = results.summarise(samples, list(settings.sets))
    (folder / "results.json").write_text(json.dumps(found.to_json(), indent=1))
    (folder / "table.md").write_text(table.markdown(found))
    console.print(table.rich_table(found, width=console.width))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0; 2 where the user can mend it."""
    parser = argparse.ArgumentParser(
        prog="python -m agents.evaluate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="sets (or parquet files), and section.key=value")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), help="DATA_DIR")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUTPUT_DIR", "outputs")), help="OUTPUT_DIR")
    parser.add_argument("--name", default=os.environ.get("EXPERIMENT_NAME"), help="of the run; default: the model's")
    parser.add_argument("--limit", type=int, help="rows of each set, drawn by the seed (the paper: 100)")
    parser.add_argument("--n", type=int, default=1, help="samples of each row")
    parser.add_argument("--seed", type=int, default=0, help="which rows")
    parser.add_argument("--deadline", type=float, help="seconds that the play of one episode may take")
    parser.add_argument("--retry-failed", action="store_true", help="take failed samples again")
    given = parser.parse_intermixed_args(arguments)
    try:
        settings = settings_of(given)
        name = given.name or "eval-" + re.sub(r"[^\w.-]+", "-", settings.policy.model)
        run(settings, given.out, name, given.retry_failed)
    except SoulError as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
