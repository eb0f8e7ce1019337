"""A folder of sources as their authors publish them, made from the real records outside of the repository.

The records in `shared/data` are samples under names of their own; here they stand under the published names, beside
files that are published with them and that no evaluation set reads.
"""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data.intents import read_openings
from soul import examples

# Published name -> the file in shared/data that stands there.
NAMES = {
    "hitom/Hi-ToM_data.json": "hitom/official_form_sample.json",
    "paratomi/Percept-ToMi.csv": "paratomi/percept_tomi_sample.csv",
    "paratomi/train.txt": "paratomi/train_sample.txt",
    "paratomi/val.txt": "paratomi/train_sample.txt",
    "paratomi/test.txt": "paratomi/paraphrased_tomi_test.txt",
    "paratomi/test.trace": "paratomi/paraphrased_tomi_test.trace",
    "mistakes/train.csv": "mistakes/eedi_train_sample.csv",
    "mistakes/misconception_mapping.csv": "mistakes/eedi_misconception_mapping_sample.csv",
    "mistakes/mae_data.json": "mistakes/mae_data.json",
    "coser/data/test/test_set.json": "coser/test_set_public_domain.json",
    "coser/data/final/King Lear.json": "coser/train_like_KingLear.json",
    "alignx/benchmark/P-Soups/student_phd.json": "alignx/P-Soups_student_phd_sample.json",
    "alignx/benchmark/P-Soups/friendly_unfriendly.json": "alignx/P-Soups_friendly_unfriendly_sample.json",
    "twinvoice/dataset/dimension_3/choices.jsonl": "twinvoice/dimension_3_choices.jsonl",
    "twinvoice/dataset/dimension_3/profiles.jsonl": "twinvoice/dimension_3_profiles.jsonl",
    "userllm/dev_rand_split.jsonl": "userllm/csqa_dev_rand_split.jsonl",
    "userllm/NQ-open.dev.jsonl": "userllm/NQ-open.dev.jsonl",
    "userllm/opening_prompt_cluster_df_original.csv": "userllm/prism_opening_prompt_clusters.csv",
}
AS_THEY_ARE = ("fantom", "social_r1", "lifechoices", "mirrorbench", "sim_math", "sim_doc", "sotopia")


def publish(root: Path, data: Path) -> None:
    """Write the folder `root` from the records below `data`.

    Raises:
        FileNotFoundError: a record is absent.
    """
    for name, source in NAMES.items():
        _copy(root / name, data / source)
    for folder in AS_THEY_ARE:
        for path in (data / folder).iterdir():
            _copy(root / folder / path.name, path)
    (root / "hitom" / "SOURCE.txt").write_text("Notes.")
    (root / "coser" / "data" / "test" / "held_out_plots.json").write_text(
        json.dumps({"King Lear": [{"summary": "A storm."}]})
    )
    _intents(root / "userllm", root / "userllm" / "opening_prompt_cluster_df_original.csv")
    _humanual(root / "humanual_opinion" / "data" / "test-00000-of-00001.parquet", data)


# A folder or file of `publish` -> its place in the clones of the authors' repositories; the first that fits.
CLONES = {
    "hitom": "Hi-ToM_dataset",
    "paratomi/Percept-ToMi.csv": "PercepToM/dataset/Percept-ToMi.csv",
    "paratomi": "thought-tracing/data/paraphrased_tomi",
    "coser": "CoSER",
    "alignx": "AlignX",
    "twinvoice": "TwinBench",
    "userllm/dev_rand_split.jsonl": "commonsense/dev_rand_split.jsonl",
    "userllm/NQ-open.dev.jsonl": "natural-questions/nq_open/NQ-open.dev.jsonl",
    "userllm/opening_prompt_cluster_df_original.csv": "prism-alignment/data/opening_prompt_cluster_df_original.csv",
    "social_r1": "ToMBench/data",
    "lifechoices": "character_profiling/data",
    "mirrorbench": "mirrorbench/scratch_pad/data",
    "sim_math/knowledge_state.json": "SimulatorArena/data/user_simulator_profiles/math_tutoring/knowledge_state.json",
    "sim_doc/preferences.json": "SimulatorArena/data/user_simulator_profiles/document_creation/preferences.json",
    "sim_math": "SimulatorArena/data",
    "sim_doc": "SimulatorArena/data",
    "sotopia/env_ids.json": "sotopia-pi/llm_self_train/resources/env_ids.json",
    "sotopia": "sotopia-space/profiles",
    "mistakes": "eedi-mining-misconceptions-in-mathematics",
    "humanual_opinion": "humanual-opinion",
}


def lay_out_as_clones(root: Path, published: Path) -> None:
    """Write the folder `root` with the files of `published` as they lie in clones of the authors' repositories."""
    for path in (path for path in sorted(published.rglob("*")) if path.is_file()):
        name = path.relative_to(published).as_posix()
        old = next((old for old in CLONES if name == old or name.startswith(f"{old}/")), "")
        _copy(root / (name.replace(old, CLONES[old], 1) if old else name), path)
    for name in (
        "sotopia/sotopia/samplers/base.json",
        "fantom/eval_fantom.py",
        "OdysSim/agents/x.json",
        "CoSER/.git/x",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    questions = root / "commonsense" / "dev_rand_split.jsonl"  # the records are the hub's; this is the authors' form
    lines = []
    for raw in map(json.loads, questions.read_text().splitlines()):
        pairs = zip(raw["choices"]["label"], raw["choices"]["text"], strict=True)
        choices = [{"label": label, "text": text} for label, text in pairs]
        question = {"stem": raw["question"], "question_concept": raw.get("question_concept"), "choices": choices}
        lines.append(json.dumps({"answerKey": raw.get("answerKey"), "id": raw.get("id"), "question": question}))
    questions.write_text("\n".join(lines))


KEPT = {"data": {}, "reason": "", "calls": 1, "usd": 0.0, "unpriced": 0, "model": "m", "prompt": "userllm/intent.v1"}


def _copy(path: Path, source: Path) -> None:
    """A copy, not a link: what writes to the published file must not change the real records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)


def _intents(folder: Path, openings: Path) -> None:
    """Invented intents for the real openings, in the form that `python -m data.userllm intents` writes."""
    lines = [
        json.dumps({"key": found.key, "answer": {"intent": f"Discuss subject number {number} calmly"}, **KEPT})
        for number, found in enumerate(read_openings(openings))
    ]
    (folder / "intents.jsonl").write_text("\n".join(lines))


def _humanual(path: Path, data: Path) -> None:
    """Real posts, with invented answers in the published columns: the real ones are on Hugging Face only."""
    posts = json.loads((data / "humanual_opinion" / "reddit_post_dict_testset_sample.json").read_text())
    example = examples.load("humanual-opinion")
    rows = []
    for number, (post_id, post) in enumerate(posts.items()):
        answer = example.record(number)
        prompt = [{"role": "poster", "content": post["post"], "metadata": ""}]
        known = {"post_id": post_id, "user_id": f"u{number}", "persona": answer["persona"]}
        rows.append({"prompt": prompt, "completion": answer["completion"], **known})
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
