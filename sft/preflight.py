"""What can be wrong is looked at before a process of the training starts: config, model, corpus, checkpoint.

The corpus is opened here as the training opens it: it is tokenised once, by one process, with its progress shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from agents.evaluate.settings import choose_sets
from ditto.model.attention_check import check_attention
from ditto.model.head_settings import check_head
from ditto.preflight import load_tokenizer
from ditto.settings import BadConfig
from sft.checkpoints import check_resume
from sft.corpus import Corpus, open_corpus
from sft.corpus_settings import SftDataSettings
from sft.memory_plan import check_memory
from sft.sources import find_files
from sft.tested_rows import check_overlap


def data_settings(config: DictConfig) -> SftDataSettings:
    """The section `data`, as far as it is about the corpus.

    Raises:
        BadConfig: a value that cannot be.
    """
    data = OmegaConf.to_container(config.data, resolve=True)
    assert isinstance(data, dict)
    given: dict[str, Any] = {name: data[name] for name in SftDataSettings.model_fields if name in data}
    given["cache_dir"] = given.get("cache_dir") or Path(config.run.dir).parent / "sft_cache"
    try:
        return SftDataSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(["data", *(str(part) for part in first["loc"])])
        raise BadConfig(f"{key}={first['input']!r}: {first['msg']}.") from None


def load_corpora(config: DictConfig) -> tuple[Corpus, Corpus | None]:
    """The training and the validation split, tokenised by the model's tokenizer.

    Raises:
        SoulError: files, rows, model or limits that cannot be trained on.
    """
    from transformers import AutoConfig

    path, trust = str(config.model.path), bool(config.model.trust_remote_code)
    tokenizer = load_tokenizer(path, trust, "model.path")
    model = AutoConfig.from_pretrained(path, trust_remote_code=trust)
    context = getattr(getattr(model, "text_config", model), "max_position_embeddings", None)
    settings = data_settings(config)
    train = open_corpus(settings, tokenizer, "train", context)
    assert train is not None  # there is no training without: it raises
    return train, open_corpus(settings, tokenizer, "val", context)


def check(config: DictConfig) -> str:
    """Check everything.

    Returns:
        The plan, for people.

    Raises:
        SoulError: one of its kinds, with the remedy.
    """
    trainer, data = config.trainer, config.data
    ranks = trainer.n_gpus_per_node * trainer.nnodes
    if data.train_batch_size % ranks:
        raise BadConfig(
            f"data.train_batch_size={data.train_batch_size} cannot be dealt out to {ranks} devices. Use a multiple."
        )
    longest = data.max_prompt_length + data.max_response_length
    if data.use_dynamic_bsz and data.max_token_len_per_gpu < longest:
        raise BadConfig(
            f"data.max_token_len_per_gpu={data.max_token_len_per_gpu} is less than one sequence may have "
            f"({longest} tokens). Raise it, or lower data.max_prompt_length or data.max_response_length."
        )
    load_tokenizer(str(config.model.path), bool(config.model.trust_remote_code), "model.path")  # is it a model at all?
    check_attention(config)
    resumed = check_resume(config, ranks)
    tested = str(trainer.rl_test_files or "").split()  # compared without a test too: somebody will evaluate on them
    if trainer.rl_test_freq and not tested:
        raise BadConfig("trainer.rl_test_freq asks for a generative test: name files with trainer.rl_test_files.")
    compared = _check_tested(config, tested) if tested else []
    train, val = load_corpora(config)
    check_head(config.model, config.engine, "model")
    steps = trainer.total_training_steps or trainer.total_epochs * -(-len(train.order) // data.train_batch_size)
    passes = steps * data.train_batch_size / len(train.order)
    memory = check_memory(config, longest) if config.trainer.device != "cpu" else []
    lines = [
        f"{config.model.path} on {ranks} devices, {steps:,} steps of {data.train_batch_size:,} sequences: "
        f"{passes:,.2f} epochs of {len(train.order):,} sequences",
        f"run folder {config.run.dir}, " + (f"goes on after step {resumed}" if resumed else "from the beginning"),
    ]
    if tested:
        often = f"every {trainer.rl_test_freq} steps" if trainer.rl_test_freq else "never (trainer.rl_test_freq)"
        lines += [f"a generative test of {', '.join(tested)} {often}", *compared]
    return "\n".join([*lines, *memory, _table(train, "train"), *([_table(val, "val")] if val else [])])


def _check_tested(config: DictConfig, tested: Sequence[str]) -> list[str]:
    """Check the rows of the generative test against the training corpus; lines for the plan."""
    settings = data_settings(config)
    files = [file for group in find_files(settings.train_files, settings.dir, "train") for file in group.files]
    return check_overlap(files, choose_sets(tested, Path("data")).values(), bool(config.data.allow_overlap))


def _table(corpus: Corpus, split: str) -> str:
    """What became of the rows of a split."""
    drawn = Table(title=split, title_justify="left")
    for column in ("source", "trained turns", "rows", "sequences", "tokens", "trained tokens", "left out"):
        drawn.add_column(column, justify="left" if column in ("source", "trained turns", "left out") else "right")
    for name, counts in corpus.sources.items():
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in counts.left_out.most_common())
        numbers = (counts.rows, counts.sequences, counts.tokens, counts.trained_tokens)
        drawn.add_row(name, counts.role, *(f"{number:,}" for number in numbers), left_out)
    console = Console(width=max(120, Console().width))
    with console.capture() as captured:
        console.print(drawn)
        for reason, example in corpus.examples.items():
            console.print(f"{reason}, for instance: {example}", markup=False)
    return captured.get().rstrip()
