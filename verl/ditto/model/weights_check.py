"""Check the folder of a model: its weights are complete, can be trained, and match config.json and the tokenizer.

Only the headers of the files are read. Otherwise an incomplete download, a missing shard or another model's config.json
would fail in every worker after minutes, and a missing tensor would silently be initialized at random.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from soul.errors import SoulError, one_line
from soul.mistakes import Mistakes

_REMEDY = "Download or copy the model again"
_LFS = b"version https://git-lfs"
GENERATION = "generation_config.json"


class BadModel(SoulError):
    """A model path does not hold a model that can be trained."""


def check_model_folder(path: str, trust: bool, setting: str) -> None:
    """Check config.json and generation_config.json of a model.

    Args:
        trust: whether to run code that comes with the model.
        setting: the setting that holds the path, for messages.

    Raises:
        BadModel: its weights are quantized, or its generation_config.json cannot be read.
    """
    from transformers import AutoConfig, GenerationConfig

    found = Mistakes()
    with found.of():
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
        quantized = getattr(config, "quantization_config", None)
        if quantized is not None:
            method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized.quant_method
            raise BadModel(
                f"{setting}={path}: its weights are quantized ({method}), and quantized weights cannot be trained. "
                "Use the checkpoint from which it was made."
            )
    if (Path(path) / GENERATION).is_file():
        with found.of():
            try:
                GenerationConfig.from_pretrained(path)
            except Exception as error:  # noqa: BLE001 - a damaged file makes transformers raise anything
                raise BadModel(
                    f"{setting}={path}: {GENERATION} cannot be read ({one_line(error, 200)}). Correct it, or remove it."
                ) from error
    found.report()


def check_vocabulary(path: str, trust: bool, setting: str, tokenizer: Any) -> None:
    """Check that the embedding has a row for each token.

    Raises:
        BadModel: a token's number is beyond the embedding.
    """
    from transformers import AutoConfig

    rows = AutoConfig.from_pretrained(path, trust_remote_code=trust).get_text_config().vocab_size
    token, number = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if number >= rows:
        raise BadModel(
            f"{setting}={path}: the tokenizer numbers its tokens up to {number:,} ({token!r}), but the embedding has "
            f"{rows:,} rows (vocab_size in config.json). Use the tokenizer that belongs to the weights, or enlarge the "
            "embedding (resize_token_embeddings of transformers) and save the model."
        )


def check_weights(path: str, trust: bool, setting: str) -> None:
    """Check the weights in a folder. A hub id is not checked: its download verifies the files.

    Args:
        trust: whether to run code that comes with the model.
        setting: the setting that holds the path, for messages.

    Raises:
        BadModel: a file is missing or truncated, or a tensor is missing or has another shape than config.json says.
    """
    folder = Path(path)
    if not folder.is_dir():
        return
    try:
        files = _files(folder)
        for file in files:
            _check_file(file)
        if all(file.suffix == ".safetensors" for file in files):
            _compare(folder, trust)
    except BadModel as error:
        raise BadModel(f"{setting}={path}: {error}") from error


def _files(folder: Path) -> list[Path]:
    """The files that hold the weights."""
    for whole, index in (
        ("model.safetensors", "model.safetensors.index.json"),
        ("pytorch_model.bin", "pytorch_model.bin.index.json"),
    ):
        if (folder / index).is_file():
            return _shards(folder / index)
        if (folder / whole).is_file():
            return [folder / whole]
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
        raise BadModel(f"there is neither model.safetensors nor model.safetensors.index.json. {_REMEDY}.")
    raise BadModel(f"there are no weights in the folder (model.safetensors, or shards with their index). {_REMEDY}.")


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadModel(f"{index.name} cannot be read ({type(error).__name__}: {error}). {_REMEDY}.") from error
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise BadModel(
            f"{missing[0]} is missing{f', and {len(missing) - 1} more shards' if len(missing) > 1 else ''} "
            f"({index.name} names {len(names)}). {_REMEDY}."
        )
    return [index.parent / name for name in names]


def _check_file(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    with file.open("rb") as opened:
        start = opened.read(len(_LFS))
    if start == _LFS:
        raise BadModel(f"{file.name} is a git-lfs pointer, not the weights. Run git lfs pull in the folder.")
    try:
        if file.suffix == ".safetensors":
            with safe_open(file, "pt"):  # compares the header with the file's size
                return
        zipfile.ZipFile(file).close()  # torch's format: a zip, whose directory is at the end
    except (SafetensorError, zipfile.BadZipFile, OSError) as error:
        size = f"{file.stat().st_size:,} bytes"
        raise BadModel(f"{file.name} is truncated or damaged ({size}; {error}). {_REMEDY}.") from error


def _compare(folder: Path, trust: bool) -> None:
    """Load the folder onto the device "meta": transformers compares names and shapes, and reads no tensor."""
    model_class = _class_of(folder, trust)
    if model_class is None:
        return
    try:
        with _quiet():
            _, report = model_class.from_pretrained(
                folder,
                device_map="meta",
                trust_remote_code=trust,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except Exception as error:  # noqa: BLE001 - a damaged folder makes transformers raise anything
        reason = one_line(error, 300)
        raise BadModel(f"transformers cannot build the model of config.json ({reason}). {_REMEDY}.") from error
    for name, stored, wanted in sorted(report["mismatched_keys"]):
        raise BadModel(
            f"the weights do not match config.json: {name} has the shape {list(stored)}, but config.json asks for "
            f"{list(wanted)}. Use the config.json that belongs to the weights."
        )
    for name in sorted(report["missing_keys"]):
        more = len(report["missing_keys"]) - 1
        raise BadModel(
            f"the weights lack {name}{f' and {more} more tensors' if more else ''}, which config.json asks for; they "
            f"would be random. {_REMEDY}, or use the config.json that belongs to the weights."
        )


def _class_of(folder: Path, trust: bool) -> Any:
    """The class that config.json names, else the causal language model of its type; None if there is neither."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust)
    if getattr(config, "quantization_config", None) is not None:
        return None  # quantized tensors have other shapes than the model's
    named = [getattr(transformers, name, None) for name in config.architectures or ()]
    if named and named[0] is not None:
        return named[0]
    known = type(config) in transformers.AutoModelForCausalLM._model_mapping
    return transformers.AutoModelForCausalLM if known or trust else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bar and its table of missing keys: our error says the same in one sentence."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
