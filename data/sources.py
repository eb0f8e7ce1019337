"""Where the rows of each evaluation set come from: the files that authors publish, and the builder that reads them.

`BUILDS` names for each set the files that the builder needs (a `Form`; the first complete one is used) and the hint for
a user who lacks them. Files are glob patterns, in upper or lower case, below a folder of SOURCES. A folder belongs to a
set if it has the set's name or that of a repository that publishes it; a file of any other folder is taken if its name
and its content say what it is (`CONTENT`). So clones of the authors' repositories work as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from data.licences import (
    APACHE,
    APACHE_NOT_COMMERCIAL,
    APACHE_NOVELS,
    BY_THEIR_AUTHORS,
    CC_BY_SA_3,
    CC_BY_SA_4,
    COMPETITION,
    MIT,
    MIT_FOR_EVALUATION,
    MIT_NOVELS,
    NO_LICENCE,
    PRISM,
    Origin,
)


@dataclass(frozen=True)
class Form:
    """One form in which a source is published.

    Attributes:
        files: patterns below the folder; each must match at least one file.
        stands_in: a remark for the user if these are not the rows that the paper evaluates; else "".
        options: command-line options of the builder for this form.
    """

    files: tuple[str, ...]
    stands_in: str = ""
    options: tuple[str, ...] = ()


# Pattern of a file that is recognised wherever it lies -> a text that its first 64 KiB hold.
CONTENT = {
    "Hi-ToM_data.json": "question_order",
    "Percept-ToMi.csv": "qTypeRaw",
    "fantom_v1.json": "set_id",
    "train.csv": "MisconceptionAId",
    "misconception_mapping.csv": "MisconceptionName",
    "dataset/dimension_3/*.jsonl": "choices",
    "data/*.jsonl": "OPTION-A",
    "motivation_dataset.json": "Multiple Choice Question",
    "truth_persona_*.json": "{",
    "P-Soups/*.json": "ground_truth_persona",
    "*dev_rand_split.jsonl": "choices",
    "NQ-open.dev.jsonl": "answer",
    "conversations.jsonl": "conversation_history",
    "*opening_prompt_cluster*.csv": "top_texts",
    "intents.jsonl": "intent",
    "chatbot_arena*_mirror.jsonl": "task_description",
    "clariq*_mirror.jsonl": "task_description",
    "oasst1*_mirror.jsonl": "task_description",
    "qulac*_mirror.jsonl": "task_description",
    "math_tutoring_annotations_for_benchmarking.json": "user_queries",
    "math_tutoring_annotations_redacted_for_benchmarking.json": "user_queries",
    "document_creation_annotations_for_benchmarking.json": "user_queries",
    "environment_profiles.jsonl": "agent_goals",
    "agent_profiles.jsonl": "first_name",
    "relationship_profiles.jsonl": "agent1_id",
    "env_agent_combo_storages.jsonl": "agent_ids",
    "env_ids.json": "sotopia_hard_env_id",
    "test_set.json": "scenario",
}
_REPOSITORY = re.compile(r"(?:github\.com|huggingface\.co/datasets)/[\w.-]+/([\w.-]*\w)")


class Sources:
    """The folders of SOURCES and the files in them, listed once; hidden files and folders are left out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[Path, list[Path]] = {}

    @cached_property
    def folders(self) -> list[Path]:
        """The folders of SOURCES, by name."""
        return sorted(path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))

    def files(self, folder: Path) -> list[Path]:
        """The files of a folder, as paths below it, in alphabetical order."""
        if folder not in self._files:
            found: list[Path] = []
            for place, inner, names in os.walk(folder):
                inner[:] = [name for name in inner if not name.startswith(".")]
                here = Path(place).relative_to(folder)
                found += (here / name for name in names if not name.startswith("."))
            self._files[folder] = sorted(found)
        return self._files[folder]


def _plain(name: str) -> str:
    """The name of a folder without case and punctuation: "Hi-ToM_dataset" and "hi_tom_dataset" are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a glob pattern, in upper or lower case."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(path[start:], pattern[1:]) for start in range(len(path)))
    return bool(path) and fnmatch(path[0].lower(), pattern[0].lower()) and _fits(path[1:], pattern[1:])


def _starts_with(path: Path, text: str) -> bool:
    with path.open("rb") as file:
        return text.encode() in file.read(2**16)


@dataclass(frozen=True)
class SourceMatch:
    """The files of SOURCES that belong to one set.

    Attributes:
        folder: where they are, or where to put them.
        form: the complete form; None if there is none.
        files: the files that the form's patterns match.
        missing: patterns of the nearest form that match nothing; empty if a form is complete.
        beside: further files that the builder reads.
    """

    folder: Path
    form: Form | None
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()
    beside: tuple[Path, ...] = ()


# Pattern of files that never hold rows of an evaluation set -> why not; "" for files that come with every download.
UNUSED = {
    "SOURCE.txt": "",
    "README*": "",
    "LICENSE*": "",
    ".*": "",
    "*sample*": "a sample, not the published file",
    "train*": "for training",
    "val*": "for training",
}


@dataclass(frozen=True)
class Build:
    """How the file of a set is built: `python -m data.BUILDER convert FIRST FILES... OPTIONS --out FILE`.

    Attributes:
        builder: the module in data/.
        origins: where to get the source, and under which terms.
        forms: the forms of the source, the best one first.
        options: command-line options of the builder.
        other_folders: names that the folder below SOURCES may have, if not that of the builder.
        first: arguments that go before the files.
        beside: patterns of optional files that the builder finds by itself.
        unused: files of the folder that do not belong to this set -> why not; None: they do, against `UNUSED`.
        hint: what else the user should know about getting the files.
    """

    builder: str
    origins: tuple[Origin, ...]
    forms: tuple[Form, ...]
    options: tuple[str, ...] = ()
    other_folders: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unused: Mapping[str, str | None] = field(default_factory=dict)
    hint: str = ""

    @property
    def where(self) -> str:
        """Where to get the source, for people."""
        return "; ".join([*map(str, self.origins), *([self.hint] if self.hint else [])])

    @property
    def folders(self) -> tuple[str, ...]:
        """Names that a folder below SOURCES may have: the builder's or its own, and those of the repositories."""
        own = self.other_folders or (self.builder,)
        return (*own, *(name for origin in self.origins for name in _REPOSITORY.findall(origin.where)))

    def homes(self, sources: Sources) -> list[Path]:
        """The folders of SOURCES that have one of these names."""
        by_name: dict[str, list[Path]] = {}
        for folder in sources.folders:
            by_name.setdefault(_plain(folder.name), []).append(folder)
        return [folder for name in dict.fromkeys(map(_plain, self.folders)) for folder in by_name.get(name, ())]

    def find(self, root: Path | Sources) -> SourceMatch:
        """Match the files of SOURCES: the first complete form, or else the one with the most files.

        A form is complete in one folder if possible, or its files are taken from several.
        """
        sources = root if isinstance(root, Sources) else Sources(root)
        homes = self.homes(sources)
        home = homes[0] if homes else sources.root / self.folders[0]
        found = {form: self._find_form(form, homes, sources) for form in self.forms}
        complete = next((form for form in self.forms if all(found[form])), None)
        best = complete or max(self.forms, key=lambda form: sum(map(bool, found[form])))
        files = tuple(dict.fromkeys(path for match in found[best] for path in match))
        missing = tuple(pattern for pattern, match in zip(best.files, found[best], strict=True) if not match)
        if files:
            home = next(folder for folder in sources.folders if folder in files[0].parents)
        beside = (path for pattern in self.beside for path in self._matching(home, pattern, sources))
        return SourceMatch(home, complete, files, missing, tuple(beside))

    def _find_form(self, form: Form, homes: Sequence[Path], sources: Sources) -> list[list[Path]]:
        """The files of each pattern of a form."""
        by_home = [[self._matching(home, pattern, sources) for pattern in form.files] for home in homes]
        if whole := next((found for found in by_home if all(found)), None):
            return whole
        return [
            next((found[place] for found in by_home if found[place]), self._recognised(pattern, homes, sources))
            for place, pattern in enumerate(form.files)
        ]

    def _recognised(self, pattern: str, homes: Sequence[Path], sources: Sources) -> list[Path]:
        """The files of another folder whose names and contents say that they are these."""
        content = CONTENT.get(pattern.removeprefix("**/"))
        for folder in sources.folders if content else ():
            files = [] if folder in homes else self._matching(folder, pattern, sources)
            if files and _starts_with(files[0], content or ""):
                return files
        return []

    def arguments(self, match: SourceMatch, out: Path) -> list[str]:
        """The builder's command line; `match` must be complete."""
        assert match.form is not None, match
        return ["convert", *self.first, *map(str, match.files), *self.options, *match.form.options, "--out", str(out)]

    def why_unused(self, path: Path) -> str | None:
        """Why a file, named by its path below the folder, does not belong to this set; None if it may belong to it."""
        known = {
            **self.unused,
            **{pattern: why for pattern, why in UNUSED.items() if pattern not in self.unused},
        }.items()
        return next((why for pattern, why in known if fnmatch(path.name, pattern) or path.match(pattern)), None)

    def _matching(self, folder: Path, pattern: str, sources: Sources) -> list[Path]:
        named = "*" not in pattern.removeprefix("**/")  # a pattern without wildcards always matches
        parts = pattern.split("/")
        files = (path for path in sources.files(folder) if _fits(path.parts, parts))
        return [folder / path for path in files if named or self.why_unused(path) is None]


def describe_files(patterns: Sequence[str]) -> str:
    """The files of a form, for a message."""
    return ", ".join(pattern.removeprefix("**/") for pattern in patterns)


ALIGNX = ("alignx", "alignx_demo", "alignx_pair", "alignx_ugc", "alignx_arbitrary", "alignx_history16")
HUMANUAL = ("book", "chat", "email", "news", "opinion", "politics")
_SIM_ARENA = (Origin("github.com/microsoft/SimulatorArena, folder data", MIT),)
_SOTOPIA = tuple(
    f"**/{name}"
    for name in (
        *("environment_profiles.jsonl", "agent_profiles.jsonl", "relationship_profiles.jsonl"),
        *("env_agent_combo_storages.jsonl", "env_ids.json"),
    )
)
_CORPORA = ("chatbot_arena", "clariq", "oasst1", "qulac")


def _humanual(kind: str) -> Build:
    return Build(
        "humanual",
        (Origin(f"huggingface.co/datasets/snap-stanford/humanual-{kind}", BY_THEIR_AUTHORS),),
        tuple(Form((pattern,)) for pattern in ("**/*test*.parquet", "**/*.parquet", "**/*.jsonl")),
        options=("--set", kind),
        other_folders=(f"humanual_{kind}", f"humanual-{kind}"),
        unused={"*.json": "posts without answers, or not the published form"},
    )


def _alignx(name: str) -> Build:
    # AlignX-test has one file for each set (Reddit_DEMO, Reddit_PAIR, ...); the builder refuses another set's file.
    words = {"alignx_demo": "DEMO", "alignx_pair": "PAIR", "alignx_ugc": "UGC"}
    words |= {"alignx_arbitrary": "arbitrary", "alignx_history16": "16"}
    forms = [Form((f"**/*{words[name]}*.{kind}",)) for kind in ("json*", "parquet")] if name in words else []
    if name in ("alignx", "alignx_pair"):
        psoups = "P-Soups, AlignX's out-of-distribution benchmark, stands in for AlignX-test"
        forms.append(Form(("**/P-Soups/*.json",), psoups))
    return Build(
        "alignx",
        (
            Origin("huggingface.co/datasets/JinaLeejnl/AlignX-test", NO_LICENCE),
            *([Origin("github.com/JinaLeejnl/AlignX, benchmark/P-Soups", NO_LICENCE)] if len(forms) != 2 else []),
        ),
        (*forms, *([Form(("*.json",))] if name == "alignx" else [])),
        options=("--set", name),
        unused={"UF-P-4*": "another benchmark of AlignX", "PRISM.json": "another benchmark of AlignX"},
    )


def _userllm(prism: str, stands_in: str = "") -> Form:
    return Form(("**/*dev_rand_split.jsonl", "**/NQ-open.dev.jsonl", prism, "**/intents.jsonl"), stands_in)


# Set -> its build. "alignx" is no evaluation set: it is here for training files.
BUILDS: dict[str, Build] = {
    "hitom": Build(
        "hitom",
        (Origin("github.com/ying-hui-he/Hi-ToM_dataset", APACHE),),
        (Form(("**/Hi-ToM_data.json",)),),
    ),
    "paratomi": Build(
        "paratomi",
        (Origin("github.com/chanijung/PercepToM, dataset/", NO_LICENCE),),
        (Form(("**/Percept-ToMi.csv",)),),
        unused={
            "train.t*": "for training: python -m data.paratomi convert train.txt",
            "*test.t*": "paraphrases of the evaluation's stories: not for training",
        },
    ),
    "fantom": Build(
        "fantom",
        (Origin("github.com/skywalker023/fantom, whose loader fetches the file", MIT_FOR_EVALUATION),),
        (
            Form(("**/fantom_v1.json",)),
            Form(
                ("**/FANToM_*_short_context_*.csv",),
                "AutoToM's CSVs stand in for fantom_v1.json: 15 % of its questions",
            ),
        ),
        options=("--test-conversations", "18"),
    ),
    "mistakes": Build(
        "mistakes",
        (Origin("kaggle.com/competitions/eedi-mining-misconceptions-in-mathematics", COMPETITION),),
        (Form(("**/train.csv", "**/misconception_mapping.csv")),),
        options=("--rows", "600"),
        other_folders=("mistakes", "eedi"),
        unused={"mae_data.json": "open answers, no options to choose from", "*.csv": "no labelled questions"},
    ),
    "twinvoice": Build(
        "twinvoice",
        (Origin("github.com/TwinVoice/TwinBench, dataset/", NO_LICENCE),),
        (
            *(Form(tuple(f"{top}dimension_{number}/*.jsonl" for number in (1, 2, 3))) for top in ("dataset/", "")),
            *(
                Form((pattern,), "ONLY the dimensions in these files; the paper has three")
                for pattern in ("dataset/dimension_3/*.jsonl", "dataset/**/*.jsonl", "dimension_*/*.jsonl", "*.jsonl")
            ),
        ),
    ),
    "social_r1": Build(
        "social_r1",
        (
            Origin("huggingface.co/datasets/Jincenzi/ToMBench_Hard", NO_LICENCE),
            Origin("github.com/zhchen18/ToMBench, data/", MIT_FOR_EVALUATION),
        ),
        (
            *(Form((pattern,)) for pattern in ("**/*.parquet", "**/*hard*.json*")),
            *(Form((pattern,), "ToMBench stands in for ToMBench-Hard") for pattern in ("data/*.jsonl", "*.jsonl")),
        ),
        unused={"train*": None, "val*": None},
        hint="the first is named by the model card of huggingface.co/Jincenzi/SocialR1-8B; its files are unknown to us",
    ),
    "lifechoices": Build(
        "lifechoices",
        (Origin("github.com/airaer1998/LifeChoice, data/", APACHE_NOVELS),),
        (
            # Whole books up to the paper's 600 rows; the other books are for training.
            Form(("**/data.json",), options=("--rows", "600")),
            Form(
                ("**/motivation_dataset.json", "**/truth_persona_*.json"),
                "github.com/Joanna0123/character_profiling (MIT) stands in for LifeChoice",
                options=("--rows", "180"),  # the same share of its 445 rows
            ),
        ),
        other_folders=("lifechoices", "character_profiling"),
    ),
    **{name: _alignx(name) for name in ALIGNX},
    **{f"humanual_{kind}": _humanual(kind) for kind in HUMANUAL},
    "userllm": Build(
        "userllm",
        (
            Origin("CommonsenseQA, dev_rand_split.jsonl", MIT),
            Origin("github.com/google-research-datasets/natural-questions, nq_open/", CC_BY_SA_3),
            Origin("github.com/HannahKirk/prism-alignment", PRISM),
        ),
        (
            _userllm("**/conversations.jsonl"),
            _userllm("**/*opening_prompt_cluster*.csv", "PRISM's table of openings stands in for its conversations"),
        ),
        options=("--per-source", "600"),
        other_folders=("userllm", "commonsenseqa"),
        unused={"*no_answers*": "without answers", "*.train.*": "for training"},
        hint="a model writes intents.jsonl: "
        "python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl",
    ),
    "mirrorbench": Build(
        "mirrorbench",
        (Origin("github.com/SAP/mirrorbench, scratch_pad/data/", APACHE_NOT_COMMERCIAL),),
        (Form(tuple(f"**/{corpus}*_mirror.jsonl" for corpus in _CORPORA)),),
    ),
    "sim_math": Build(
        "sim_arena",
        _SIM_ARENA,
        # The repository's own script restores the problems' texts and drops "redacted" from the name.
        tuple(
            Form((f"**/math_tutoring_annotations{redacted}_for_benchmarking.json",)) for redacted in ("", "_redacted")
        ),
        other_folders=("sim_math", "sim_arena"),
        first=("math",),
        beside=("**/*concepts.json", "**/math_tutoring/*.json", "*.json"),
    ),
    "sim_doc": Build(
        "sim_arena",
        _SIM_ARENA,
        (Form(("**/document_creation_annotations_for_benchmarking.json",)),),
        other_folders=("sim_doc", "sim_arena"),
        first=("doc",),
        beside=("**/*background.json", "**/document_creation/*.json", "*.json"),
    ),
    "sotopia": Build(
        "sotopia",
        (
            Origin("github.com/sotopia-lab/sotopia-space, profiles/", CC_BY_SA_4),
            Origin("github.com/sotopia-lab/sotopia-pi, llm_self_train/resources/env_ids.json", CC_BY_SA_4),
        ),
        (Form(_SOTOPIA),),
        options=("--hard",),
        hint="a clone of github.com/sotopia-lab/sotopia holds no rows",
    ),
    "behaviorchain": Build(
        "behavior_chain",
        (Origin("github.com/O-L1RU1/BehaviorChain", APACHE_NOVELS),),
        (Form(("**/finally_examples_*.json",)),),
        other_folders=("behaviorchain", "behavior_chain"),
        hint="that repository has the pipeline that writes these files; the benchmark's own are withheld until the "
        "books' copyright is cleared",
    ),
    "socsci210": Build(
        "socsci210",
        (Origin("huggingface.co/datasets/socratesft/SocSci210, data/, metadata/participant_mapping.json", NO_LICENCE),),
        tuple(Form((pattern, "**/participant_mapping.json")) for pattern in ("**/*.parquet", "**/*.jsonl")),
        options=("--part", "unseen", "--rows", "500"),
        unused={"train*": None},  # the hub's only split, with the studies of both parts
    ),
    "humanllm": Build(
        "humanllm",
        (),
        tuple(Form((pattern,)) for pattern in ("**/item_selection*.jsonl", "**/item_selection*.parquet")),
        hint="no public file is known to us; python -m data.humanllm --help describes the form",
    ),
    "coser": Build(
        "coser",
        (Origin("github.com/Neph0s/CoSER, data/test/, or huggingface.co/datasets/Neph0s/CoSER", MIT_NOVELS),),
        (Form(("**/test_set.json",)),),
        unused={
            "held_out_plots.json": "plots without conversations",
            "full/*.json": "for training: python -m data.train",
            "final/*.json": "for training: python -m data.coser convert final/*.json",
        },
    ),
}
