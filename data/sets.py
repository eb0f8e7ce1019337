"""Evaluation sets from a folder of public records: every set whose source is there, each by its own builder.

    python -m data.sets SOURCES --out data        ->  data/sim_eval_data/hitom_val.parquet, ...

SOURCES holds a folder a benchmark (hitom/, fantom/, ...), with the files as their authors publish them. Which set is
built from which of them is in `BUILDS`; what is absent is said, and left out.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agents import tasks


class Build(NamedTuple):
    """How the rows of a task are built: `python -m data.BUILDER convert FIRST FOLDER/PATTERN... REST --out FILE`."""

    builder: str
    folder: str
    pattern: str = ""  # files of the folder; without a pattern the folder itself
    first: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()

    def sources(self, root: Path) -> list[Path]:
        """What the builder reads; empty where it is absent."""
        folder = root / self.folder
        if not folder.is_dir():
            return []
        found = (path for path in folder.glob(self.pattern) if path.name not in NO_SOURCE) if self.pattern else [folder]
        return sorted(found)

    def run(self, sources: Sequence[Path], out: Path, *more: str) -> None:
        """Write the rows of these sources to `out`."""
        arguments = ["convert", *self.first, *map(str, sources), *self.rest, *more, "--out", str(out)]
        importlib.import_module(f"data.{self.builder}").main(arguments)


# What lies beside the sources in their folders and is no source of these builders: files of other benchmarks, a second
# form of the same records, the training side of an evaluation set.
NO_SOURCE = {
    "SOURCE.txt",
    "mae_data.json",
    "official_form_sample.json",
    "percept_tomi_sample.csv",
    "train_sample.txt",
}
ALIGNX = ("alignx", "alignx_demo", "alignx_pair", "alignx_ugc", "alignx_arbitrary", "alignx_history16")
# Task -> its build.
BUILDS: dict[str, Build] = {
    "hitom": Build("hitom", "hitom", "*.json"),
    "paratomi": Build("paratomi", "paratomi", "*.txt"),
    "fantom": Build("fantom", "fantom", "*.csv"),
    "mistakes": Build("mistakes", "mistakes", "eedi_*.csv"),
    "twinvoice": Build("twinvoice", "twinvoice", "*.jsonl"),
    "social_r1": Build("social_r1", "social_r1", "*.jsonl"),
    "lifechoices": Build("lifechoices", "lifechoices", "*.json"),
    **{name: Build("alignx", "alignx", "*.json", rest=("--set", name)) for name in ALIGNX},
    "userllm": Build("userllm", "userllm", "*[lv]"),
    "mirrorbench": Build("mirrorbench", "mirrorbench", "*.jsonl"),
    "sim_arena_math": Build("sim_arena", "sim_math", first=("math",)),
    "sim_arena_doc": Build("sim_arena", "sim_doc", first=("doc",)),
    "sotopia": Build("sotopia", "sotopia"),
    "coser": Build("coser", "coser", "*.json"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m data.sets", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, metavar="SOURCES")
    parser.add_argument("--out", type=Path, default=Path("data"), help="DATA_DIR; the files go to its sim_eval_data/")
    given = parser.parse_args(argv)
    absent = []
    for name, found in tasks.SETS.items():
        build = BUILDS.get(found.task)
        sources = build.sources(given.sources) if build else []
        if build is None or not sources:
            absent.append(name)
            continue
        build.run(sources, given.out / "sim_eval_data" / f"{found.file}.parquet")
    if absent:
        print(f"No source in {given.sources}, so not built: {', '.join(absent)}")


if __name__ == "__main__":
    main()
