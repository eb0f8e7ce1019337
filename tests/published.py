"""A folder of sources as their authors publish them, made from the real records outside of the repository.

The records in `shared/data` are samples under names of their own; here they stand under the published names, beside
files that are published with them and that no evaluation set reads.
"""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data.prism import read_openings
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


def _copy(path: Path, source: Path) -> None:
    """A copy, not a link: what writes to the published file must not change the real records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)


def _intents(folder: Path, openings: Path) -> None:
    """Invented intents for the real openings, in the form that `python -m data.userllm intents` writes."""
    lines = [
        json.dumps({"conversation": found.key, "intent": f"Discuss subject number {number} calmly", "prompt": "none"})
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
