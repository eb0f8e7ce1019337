"""A folder with good files and models for the training commands, and one of each that is wrong in some way."""

from __future__ import annotations

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
INDEX = "model.safetensors.index.json"


def write(path: Path, *records: dict[str, Any], data_source: str = "hitom", columns: tuple[str, ...] = ()) -> Path:
    """A task file of these records; `columns`: only these of its two."""
    table = {"data_source": [data_source] * len(records), "extra_info": list(records)}
    pq.write_table(pa.table({k: v for k, v in table.items() if not columns or k in columns}), path)
    return path


def write_talks(path: Path, *talks: list[dict[str, str]], **columns: object) -> Path:
    """A file of conversations for supervised training."""
    pq.write_table(pa.Table.from_pylist([{"messages": talk, **columns} for talk in talks]), path)
    return path


def build(folder: Path) -> Path:
    """Fill the folder; its files are named by what is wrong with them."""
    tiny_model.build(folder / "model", [ROW["story"], ROW["question"], "user assistant answer"], seed=0)
    tiny_model.build(folder / "other_words", ["quite another corpus of words"], seed=0)
    _task_files(folder)
    _talk_files(folder)
    _models(folder)
    (folder / "a file").write_text("no folder")
    (folder / "empty").mkdir()
    return folder


def _task_files(folder: Path) -> None:
    write(folder / "good.parquet", *({**ROW, "index": i} for i in range(4)))
    write(folder / "val.parquet", *({**ELSEWHERE, "index": i} for i in range(4)))
    write(folder / "seen.parquet", ELSEWHERE, {**ROW, "index": 1, "question": "Where was the lemon?"})
    nothing = {"data_source": pa.array([], pa.string()), "extra_info": pa.array([], pa.null())}
    pq.write_table(pa.table(nothing), folder / "no_rows.parquet")
    write(folder / "task.parquet", ROW, data_source="hitomm")
    write(folder / "field.parquet", {k: v for k, v in ROW.items() if k != "question"})
    write(folder / "gold.parquet", {**ROW, "correct_answer": "green_box"})
    write(folder / "type.parquet", {**ROW, "story": ["a list"]})
    whole = (folder / "good.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])


def _talk_files(folder: Path) -> None:
    write_talks(folder / "talks.parquet", TALK, TALK)
    write_talks(folder / "empty_turn.parquet", [TALK[0], {"role": "assistant", "content": " "}])
    write_talks(folder / "role.parquet", [{"role": "nobody", "content": "a"}, TALK[1]])
    pq.write_table(pa.Table.from_pylist([{"messages": TALK}]).slice(0, 0), folder / "no_talks.parquet")
    write_talks(folder / "pictures.parquet", TALK, images=["a.png"])
    (folder / "bad.jinja").write_text("{% for m in messages %}{{ m.content }")
    pq.write_table(pa.Table.from_pylist([{"messages": [{"speaker": "a"}]}]), folder / "messages_keys.parquet")


def _models(folder: Path) -> None:
    shutil.copytree(folder / "model", folder / "sharded")
    _sharded(folder / "sharded")
    for name, spoil in MODELS.items():
        copy = folder / "models" / name
        shutil.copytree(folder / "model", copy)
        spoil(copy)


def _drop(*names: str) -> Callable[[Path], None]:
    def drop(model: Path) -> None:
        for name in names:
            (model / name).unlink()

    return drop


def _configured(**changes: Any) -> Callable[[Path], None]:
    def configure(model: Path) -> None:
        file = model / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return configure


def _cut(model: Path) -> None:
    whole = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(whole[: len(whole) * 2 // 3])


def _pointer(model: Path) -> None:
    (model / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")


def _sharded(model: Path, forget: str = "") -> None:
    """Two shards in place of one file."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / WEIGHTS)
    (model / WEIGHTS).unlink()
    names = sorted(tensors)
    shards = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for shard, held in shards.items():
        if shard != forget:
            save_file({name: tensors[name] for name in held}, model / shard, {"format": "pt"})
    index = {name: shard for shard, held in shards.items() for name in held}
    (model / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))


def _lacks_shard(model: Path) -> None:
    _sharded(model, forget="model-00002-of-00002.safetensors")


def _cut_shard(model: Path) -> None:
    _sharded(model)
    shard = model / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])


def _no_index(model: Path) -> None:
    _sharded(model)
    (model / INDEX).unlink()


def _lacks_tensor(model: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / WEIGHTS)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, model / WEIGHTS, {"format": "pt"})


def _torch_file(model: Path) -> None:
    (model / WEIGHTS).unlink()
    (model / "pytorch_model.bin").write_bytes(b"PK\x03\x04 and then nothing")


def _adapter(model: Path) -> None:
    for file in model.iterdir():
        file.unlink()
    (model / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Qwen/Qwen3-8B", "r": 8}))
    (model / "adapter_model.safetensors").write_bytes(b"")


def _no_template(model: Path) -> None:
    (model / "chat_template.jinja").unlink(missing_ok=True)
    file = model / "tokenizer_config.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "chat_template"}))


def _text(name: str, text: str) -> Callable[[Path], None]:
    def write_text(model: Path) -> None:
        (model / name).write_text(text)

    return write_text


MODELS: dict[str, Callable[[Path], None]] = {
    "no_weights": _drop(WEIGHTS),
    "cut": _cut,
    "lfs_pointer": _pointer,
    "lacks_shard": _lacks_shard,
    "cut_shard": _cut_shard,
    "no_index": _no_index,
    "lacks_tensor": _lacks_tensor,
    "torch_file": _torch_file,
    "no_tokenizer": _drop("tokenizer.json", "tokenizer_config.json"),
    "no_template": _no_template,
    "broken_template": _text("chat_template.jinja", "{% for m in messages %}{{ m.content }"),
    "broken_config": _text("config.json", '{"model_type": "qwen3",'),
    "unknown_type": _configured(model_type="qwen99", architectures=["Qwen99ForCausalLM"]),
    "wider": _configured(hidden_size=256),
    "adapter": _adapter,
}
