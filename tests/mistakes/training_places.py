"""A folder with good files and models for the training commands, and one of each kind of damage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.demo import tiny_model

ROW: dict[str, Any] = {
    "index": 0,
    "story": "1 Ava entered the cellar.\n2 The lemon is in the red_box.",
    "question": "Where is the lemon really?",
    "choices": "A. red_box, B. blue_box",
    "correct_answer": "red_box",
}
ELSEWHERE = {**ROW, "story": "1 Mia entered the den.\n2 The lemon is in the red_box."}
TALK = [{"role": "user", "content": "Where is the pear?"}, {"role": "assistant", "content": "In the box."}]
WEIGHTS = "model.safetensors"


def write(path: Path, *records: dict[str, Any], data_source: str = "hitom") -> Path:
    """A task file of these records."""
    pq.write_table(pa.table({"data_source": [data_source] * len(records), "extra_info": list(records)}), path)
    return path


def write_talks(path: Path, *talks: list[dict[str, str]], **columns: object) -> Path:
    """A file of conversations for supervised training."""
    pq.write_table(pa.Table.from_pylist([{"messages": talk, **columns} for talk in talks]), path)
    return path


def build(folder: Path) -> Path:
    """Fill the folder; its files are named by what is wrong with them."""
    tiny_model.build(folder / "model", [ROW["story"], ROW["question"], "user assistant answer"], seed=0)
    tiny_model.build(folder / "other_words", ["quite another corpus of words"], seed=0)
    write(folder / "good.parquet", *({**ROW, "index": i} for i in range(4)))
    write(folder / "val.parquet", *({**ELSEWHERE, "index": i} for i in range(4)))
    write(folder / "seen.parquet", ELSEWHERE, {**ROW, "index": 1, "question": "Where was the lemon?"})
    nothing = {"data_source": pa.array([], pa.string()), "extra_info": pa.array([], pa.null())}
    pq.write_table(pa.table(nothing), folder / "no_rows.parquet")
    whole = (folder / "good.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    write(folder / "field.parquet", {k: v for k, v in ROW.items() if k != "question"})
    write_talks(folder / "talks.parquet", TALK, TALK)
    write_talks(folder / "role.parquet", [{"role": "nobody", "content": "a"}, TALK[1]])
    write_talks(folder / "pictures.parquet", TALK, images=["a.png"])
    (folder / "bad.jinja").write_text("{% for m in messages %}{{ m.content }")
    for name, spoil in MODELS.items():
        shutil.copytree(folder / "model", folder / "models" / name)
        spoil(folder / "models" / name)
    (folder / "a file").write_text("no folder")
    (folder / "empty").mkdir()
    return folder


def _cut(model: Path) -> None:
    whole = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(whole[: len(whole) * 2 // 3])


def _lacks_shard(model: Path) -> None:
    from safetensors.torch import load_file

    names = sorted(load_file(model / WEIGHTS))
    (model / WEIGHTS).rename(model / "model-00001-of-00002.safetensors")
    index = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    (model / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def _lacks_tensor(model: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / WEIGHTS)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, model / WEIGHTS, {"format": "pt"})


def _adapter(model: Path) -> None:
    for file in model.iterdir():
        file.unlink()
    (model / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen3-8B", "r": 8}))
    (model / "adapter_model.safetensors").write_bytes(b"")


def _no_template(model: Path) -> None:
    (model / "chat_template.jinja").unlink(missing_ok=True)
    file = model / "tokenizer_config.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "chat_template"}))


def _configured(**changes: Any) -> Callable[[Path], None]:
    def configure(model: Path) -> None:
        file = model / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return configure


MODELS: dict[str, Callable[[Path], object]] = {
    "no_weights": lambda model: (model / WEIGHTS).unlink(),
    "cut": _cut,
    "lfs_pointer": lambda model: (model / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\n"),
    "lacks_shard": _lacks_shard,
    "lacks_tensor": _lacks_tensor,
    "no_template": _no_template,
    "broken_config": lambda model: (model / "config.json").write_text('{"model_type": "qwen3",'),
    "unknown_type": _configured(model_type="qwen99", architectures=["Qwen99ForCausalLM"]),
    "wider": _configured(hidden_size=256),
    "adapter": _adapter,
}
