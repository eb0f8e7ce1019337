"""The builder that makes the training file of each of the paper's ten tasks, and from which public sources.

`TRAINING` is to training files what `data.sources.BUILDS` is to evaluation files: the folders below SOURCES are the
same, and a form without files means that the builder needs none.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data.licences import (
    APACHE,
    ARENA,
    BY_THEIR_AUTHORS,
    CC_BY_NC_4,
    CC_BY_SA_3,
    CC_BY_SA_4,
    MIT,
    MIT_NOVELS,
    NO_LICENCE,
    PRISM,
    PUBLIC_DOMAIN,
    Origin,
)
from data.source_folders import Build, Form, SourceMatch
from data.sources import BUILDS


class RunOptions(NamedTuple):
    """Options of `python -m data.train` for its builders.

    Attributes:
        seed: of random choices among training rows.
        models: settings of models, ROLE.KEY=VALUE.
        stages: the folder of the journals.
        evaluated: evaluation files whose groups are left out before a model is asked.
        keep: items of one file that are kept by hand although a model's answer breaks a rule.
    """

    seed: int
    models: tuple[str, ...]
    stages: Path
    evaluated: tuple[Path, ...]
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingBuild(Build):
    """The way in which a training file is built: `python -m data.BUILDER COMMAND FILES... OPTIONS --out FILE`.

    Attributes:
        command: the builder's command.
        split: the source also holds the evaluation rows. The builder then gets --train-out and --val-out, with the seed
            of `data.sets`, so that both draw the same rows for evaluation.
        asks_models: the builder has `data.model_stages.model_options`.
        validation: options of the command for rows to validate on, of a task whose rows are generated.
        size: the number of rows in the paper, for people.
    """

    command: str = "convert"
    split: bool = False
    takes_training_files: bool = True
    asks_models: bool = False
    validation: tuple[str, ...] = ()
    size: str = ""

    def training_arguments(self, match: SourceMatch, out: Path, beside: Path, run: RunOptions) -> list[str]:
        """The builder's command line; `match` must be complete.

        Args:
            out: the training file.
            beside: the file for the evaluation side of a split, which nobody reads.
        """
        assert match.form is not None, match
        words = [self.command, *self.first, *map(str, match.files), *self.options, *match.form.options]
        if self.split:
            return [*words, "--train-out", str(out), "--val-out", str(beside)]
        if self.asks_models:
            # The folder that the builder uses by itself, so that either command goes on with the other's journals.
            folder = run.stages / self.builder.removesuffix("_train")
            words += ["--stages", str(folder), *(["--models", *run.models] if run.models else [])]
            words += ["--against", *map(str, run.evaluated)] if run.evaluated else []
            words += [f"--keep={key}" for key in run.keep]
        return [*words, "--seed", str(run.seed), "--out", str(out)]


def _split(name: str, size: str) -> TrainingBuild:
    """The training side of an evaluation set's source."""
    of = BUILDS[name]
    return TrainingBuild(of.builder, of.origins, of.forms, of.options, of.folders, split=True, size=size)


_NQ = Origin("github.com/google-research-datasets/natural-questions, nq_open/", CC_BY_SA_3)
_QUESTIONS = ("**/train_rand_split.jsonl", "**/NQ-open.train.jsonl")
_PEOPLE = {"Bluesky": "**/*bluesky*.jsonl*", "Telegram": "**/*messages*.ndjson*", "Gutenberg": "**/*.txt"}
_PROFILES = tuple(f"**/{kind}_profiles" for kind in ("environment", "agent", "relationship"))

# Task -> how its training file is built; the keys are `soul_v1.PAPER`.
TRAINING: dict[str, TrainingBuild] = {
    "hitom": TrainingBuild(
        "hitom",
        (Origin("nothing: the stories are generated", APACHE),),
        (Form(()),),
        command="generate",
        options=("--stories", "200"),
        validation=("--stories", "20"),
        size="6,000 rows from 200 stories",
    ),
    "paratomi": TrainingBuild(
        "paratomi",
        (
            Origin("github.com/skywalker023/thought-tracing, data/paraphrased_tomi/train.txt and train.trace", MIT),
            Origin("the stories derive from ToMi", CC_BY_NC_4),
        ),
        (Form(("**/train.txt",)),),
        beside=("**/train.trace",),
        size="6,004 rows",
    ),
    "fantom": _split("fantom", "all but 18 conversations"),
    "coser": TrainingBuild(
        "coser",
        (Origin("huggingface.co/datasets/Neph0s/CoSER, full/", MIT_NOVELS),),
        (Form(("**/full/*.json",)), Form(("**/final/*.json",), "the samples on GitHub stand in for the 771 books")),
        size="26,500 dialogues less the test's",
    ),
    "lifechoices": _split("lifechoices", "862 of 1,462 rows"),
    "sotopia": TrainingBuild(
        "sotopia_pairs",
        (
            Origin(
                "huggingface.co/datasets/cmu-lti/sotopia-pi, dump.rdb, which data_generate/utils/"
                "convert_db_into_json.py of github.com/sotopia-lab/sotopia-pi turns into redis_json_data.json",
                CC_BY_SA_4,
            ),
        ),
        (
            Form(("**/redis_json_data.json",)),
            Form(
                (*(f"{name}.jsonl" for name in _PROFILES), "**/env_ids.json"),
                "the environments of Sotopia that are not hard stand in for Sotopia-pi's",
            ),
            Form(tuple(f"{name}.jsonl" for name in _PROFILES)),
        ),
        other_folders=("sotopia_pi", "sotopia", "sotopia-space"),
        size="2,310 rows: 462 x 5",
    ),
    "mistakes": _split("mistakes", "all pairs but 600"),
    "mirrorbench": TrainingBuild(
        "mirrorbench_train",
        (
            Origin("huggingface.co/datasets/OpenAssistant/oasst1, *.trees.jsonl.gz", APACHE),
            Origin("huggingface.co/datasets/lmsys/chatbot_arena_conversations", ARENA),
            Origin("github.com/aliannejadi/ClariQ, data/", NO_LICENCE),
            Origin("github.com/aliannejadi/qulac, data/qulac/", MIT),
        ),
        tuple(
            Form(("**/*.trees.jsonl*", arena, "**/multi_turn_human_generated_data.tsv", "**/qulac.json"))
            for arena in ("**/*.parquet", "**/chatbot_arena_conversations.jsonl")
        ),
        other_folders=("mirrorbench_corpora",),
        asks_models=True,
        size="about 3,400 dialogues",
    ),
    "twinvoice": TrainingBuild(
        "twinvoice_train",
        (
            Origin(
                "posts of Bluesky, a public dump such as huggingface.co/datasets/alpindale/two-million-bluesky-posts",
                BY_THEIR_AUTHORS,
            ),
            Origin("posts of Telegram, zenodo.org/records/3607497, Pushshift", BY_THEIR_AUTHORS),
            Origin("novels of gutenberg.org", PUBLIC_DOMAIN),
        ),
        (
            Form(tuple(_PEOPLE.values())),
            *(
                Form((pattern,), f"ONLY {name}; the paper has Bluesky, Telegram and Gutenberg")
                for name, pattern in _PEOPLE.items()
            ),
        ),
        other_folders=("twinvoice_sources",),
        asks_models=True,
        size="1,335 rows: 471 + 384 + 480",
    ),
    "userllm": TrainingBuild(
        "userllm_train",
        (
            Origin("train_rand_split.jsonl of CommonsenseQA", MIT),
            _NQ,
            Origin("huggingface.co/datasets/HannahRoseKirk/prism-alignment", PRISM),
        ),
        (
            Form((*_QUESTIONS, "**/conversations.jsonl")),
            Form(_QUESTIONS, "WITHOUT PRISM's third: put conversations.jsonl there too"),
        ),
        other_folders=("userllm",),
        asks_models=True,
        size="a third of each source",
    ),
}
