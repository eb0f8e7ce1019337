"""Where the rows of each evaluation set come from: the files that authors publish, and the builder that reads them.

`BUILDS` names for each set the folder below SOURCES, the files that the builder needs (a `Form`; the first complete one
is used) and the hint for a user who lacks them. Files are glob patterns below the folder, so a clone of the
authors' repository works as well as the bare files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
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


@dataclass(frozen=True)
class SourceMatch:
    """The files of SOURCES that belong to one set.

    Attributes:
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
        whole_folder: whether the builder takes the folder instead of its files.
        beside: patterns of optional files that the builder finds by itself.
        unused: files of the folder that do not belong to this set -> why not.
        hint: what else the user should know about getting the files.
    """

    builder: str
    origins: tuple[Origin, ...]
    forms: tuple[Form, ...]
    options: tuple[str, ...] = ()
    other_folders: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    whole_folder: bool = False
    beside: tuple[str, ...] = ()
    unused: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""

    @property
    def where(self) -> str:
        """Where to get the source, for people."""
        return "; ".join([*map(str, self.origins), *([self.hint] if self.hint else [])])

    @property
    def folders(self) -> tuple[str, ...]:
        """Names that the folder below SOURCES may have."""
        return self.other_folders or (self.builder,)

    def find(self, root: Path) -> SourceMatch:
        """Match the files of SOURCES: the first complete form, or else the one with the most files."""
        folder = next((root / name for name in self.folders if (root / name).is_dir()), root / self.folders[0])
        matches = {form: [self._matching(folder, pattern) for pattern in form.files] for form in self.forms}
        complete = next((form for form in self.forms if all(matches[form])), None)
        best = complete or max(self.forms, key=lambda form: sum(map(bool, matches[form])))
        files = tuple(dict.fromkeys(path for match in matches[best] for path in match))
        missing = tuple(pattern for pattern, match in zip(best.files, matches[best], strict=True) if not match)
        beside = (path for pattern in self.beside for path in self._matching(folder, pattern))
        return SourceMatch(folder, complete, files, missing, tuple(beside))

    def arguments(self, match: SourceMatch, out: Path) -> list[str]:
        """The builder's command line; `match` must be complete."""
        assert match.form is not None, match
        sources = [match.folder] if self.whole_folder else match.files
        return ["convert", *self.first, *map(str, sources), *self.options, *match.form.options, "--out", str(out)]

    def why_unused(self, path: Path) -> str | None:
        """Why a file, named by its path below the folder, does not belong to this set; None if it may belong to it."""
        known = {**self.unused, **UNUSED}.items()
        return next((why for pattern, why in known if fnmatch(path.name, pattern) or path.match(pattern)), None)

    def _matching(self, folder: Path, pattern: str) -> list[Path]:
        named = "*" not in pattern.removeprefix("**/")  # a pattern without wildcards always matches
        files = (path for path in folder.glob(pattern) if path.is_file())
        return sorted(path for path in files if named or self.why_unused(path.relative_to(folder)) is None)


def describe_files(patterns: Sequence[str]) -> str:
    """The files of a form, for a message."""
    return ", ".join(pattern.removeprefix("**/") for pattern in patterns)


ALIGNX = ("alignx", "alignx_demo", "alignx_pair", "alignx_ugc", "alignx_arbitrary", "alignx_history16")
HUMANUAL = ("book", "chat", "email", "news", "opinion", "politics")
_SIM_ARENA = (Origin("github.com/microsoft/SimulatorArena, folder data", MIT),)
_SOTOPIA = ("environment_profiles.jsonl", "agent_profiles.jsonl", "relationship_profiles.jsonl")
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
        tuple(Form((pattern,)) for pattern in ("dataset/**/*.jsonl", "dimension_*/*.jsonl", "*.jsonl")),
    ),
    "social_r1": Build(
        "social_r1",
        (Origin("github.com/zhchen18/ToMBench, data/", MIT_FOR_EVALUATION),),
        tuple(Form((pattern,), "ToMBench stands in for ToMBench-Hard") for pattern in ("data/*.jsonl", "*.jsonl")),
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
    ),
    **{name: _alignx(name) for name in ALIGNX},
    **{f"humanual_{kind}": _humanual(kind) for kind in HUMANUAL},
    "userllm": Build(
        "userllm",
        (
            Origin("CommonsenseQA", MIT),
            Origin("github.com/google-research-datasets/natural-questions, nq_open/", CC_BY_SA_3),
            Origin("github.com/HannahKirk/prism-alignment", PRISM),
        ),
        (
            _userllm("**/conversations.jsonl"),
            _userllm("**/*opening_prompt_cluster*.csv", "PRISM's table of openings stands in for its conversations"),
        ),
        options=("--per-source", "600"),
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
            Origin(
                "github.com/sotopia-lab/sotopia-space, profiles/, and for env_ids.json, which names the hard "
                "environments, github.com/sotopia-lab/sotopia-pi, llm_self_train/resources/",
                CC_BY_SA_4,
            ),
        ),
        (Form((*_SOTOPIA, "env_agent_combo_storages.jsonl", "env_ids.json")),),
        options=("--hard",),
        whole_folder=True,
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
