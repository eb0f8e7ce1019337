"""The sources of the rows of each evaluation set: the files that authors publish, and the builder that reads them.

`BUILDS` names for each set the files that the builder needs (a `Form`; the first complete one is used) and the hint for
a user who lacks them; `data.source_folders` finds them.
"""

from collections.abc import Mapping

from data.licences import (
    APACHE,
    APACHE_NOT_COMMERCIAL,
    APACHE_NOVELS,
    BY_THEIR_AUTHORS,
    CC_BY_NC_4,
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
from data.source_folders import Build, Form
from soul.suites import soul_v1

# Evaluation files beside the 27 sets of the suite: built and kept out of training like them, and evaluated as files.
EXTRA_SETS: Mapping[str, soul_v1.EvaluationSet] = {
    "paratomi_paraphrased": soul_v1.EvaluationSet("paratomi", "paratomi_paraphrased_val"),
}
EVALUATION_SETS: Mapping[str, soul_v1.EvaluationSet] = {**soul_v1.SETS, **EXTRA_SETS}
HUMANUAL = ("book", "chat", "email", "news", "opinion", "politics")
_SIM_ARENA = (Origin("github.com/microsoft/SimulatorArena, folder data", MIT),)
_SOTOPIA = ("environment_profiles.jsonl", "agent_profiles.jsonl", "env_agent_combo_storages.jsonl", "env_ids.json")
_CORPORA = ("chatbot_arena", "clariq", "oasst1", "qulac")


def _humanual(kind: str) -> Build:
    return Build(
        "humanual",
        (Origin(f"huggingface.co/datasets/snap-stanford/humanual-{kind}", BY_THEIR_AUTHORS),),
        tuple(Form((pattern,)) for pattern in ("**/*test*.parquet", "**/*.parquet", "**/*.jsonl")),
        options=("--set", kind),
        other_folders=(f"humanual_{kind}", f"humanual-{kind}"),
    )


def _alignx(name: str) -> Build:
    # AlignX-test has one file for each set (Reddit_DEMO, Reddit_PAIR, ...); the builder refuses another set's file.
    words = {"alignx_demo": "DEMO", "alignx_pair": "PAIR", "alignx_ugc": "UGC"}
    words |= {"alignx_arbitrary": "arbitrary", "alignx_history16": "16"}
    forms = [Form((f"**/*{words[name]}*.{kind}",)) for kind in ("json*", "parquet")]
    if name == "alignx_pair":
        psoups = "P-Soups, AlignX's out-of-distribution benchmark, stands in for AlignX-test"
        forms.append(Form(("**/P-Soups/*.json",), psoups))
    return Build(
        "alignx",
        (
            Origin("huggingface.co/datasets/JinaLeejnl/AlignX-test", NO_LICENCE),
            *([Origin("github.com/JinaLeejnl/AlignX, benchmark/P-Soups", NO_LICENCE)] if len(forms) != 2 else []),
        ),
        tuple(forms),
        options=("--set", name),
        unused=("UF-P-4*", "PRISM.json"),  # other benchmarks of AlignX
    )


# Set -> its build.
BUILDS: dict[str, Build] = {
    "hitom": Build(
        "hitom",
        (Origin("github.com/ying-hui-he/Hi-ToM_dataset", APACHE),),
        (Form(("**/Hi-ToM_data.json",)),),
    ),
    "paratomi_paraphrased": Build(
        "paratomi",
        (
            Origin("github.com/skywalker023/thought-tracing, data/paraphrased_tomi/", MIT),
            Origin("the stories derive from ToMi", CC_BY_NC_4),
        ),
        (Form(("**/*test.txt",)),),
        beside=("**/*test.trace",),
    ),
    "paratomi": Build(
        "paratomi",
        (Origin("github.com/chanijung/PercepToM, dataset/", NO_LICENCE),),
        (Form(("**/Percept-ToMi.csv",)),),
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
        other_folders=("mistakes", "eedi", "eedi-mining-misconceptions-in-mathematics"),
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
        takes_training_files=True,
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
    **{name: _alignx(name) for name in soul_v1.ALIGNX},
    **{f"humanual_{kind}": _humanual(kind) for kind in HUMANUAL},
    "userllm": Build(
        "userllm",
        (
            Origin("CommonsenseQA, dev_rand_split.jsonl", MIT),
            Origin("github.com/google-research-datasets/natural-questions, nq_open/", CC_BY_SA_3),
            Origin("github.com/HannahKirk/prism-alignment", PRISM),
        ),
        (Form(("**/*dev_rand_split.jsonl", "**/NQ-open.dev.jsonl", "**/conversations.jsonl", "**/intents.jsonl")),),
        options=("--per-source", "600"),
        other_folders=("userllm", "commonsenseqa", "commonsense"),
        unused=("*no_answers*", "*.train.*"),
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
        (Form(tuple(f"**/{name}" for name in _SOTOPIA)),),
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
        takes_training_files=True,  # the hub's only split, with the studies of both parts
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
    ),
}
