"""Check model, corpus, folders and memory before any process of the training starts.

This opens the corpus as the training does, so that one process tokenises it, once, and shows the progress.
"""

import os
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from ditto.memory import cpu
from ditto.memory.estimate import Training
from ditto.memory.plan import (
    MemoryPlan,
    check_fit,
    check_gpu,
    gpu_size,
    gpus_in_words,
    lower_limits,
    model_of,
    training_of,
)
from ditto.model.adapter_check import check_adapter
from ditto.model.exactness import check_head, check_packing
from ditto.model.model_folder import Chat, check_vocabulary, check_weights, load_chat
from ditto.run import run_json
from ditto.run.checkpoint import ResumeChoice
from ditto.settings import BadConfig
from sft.config_checks import SftRun
from sft.corpus.row_encoder import DOCUMENT
from sft.corpus.sources import SftDataSettings
from sft.corpus.split import Corpus, open_corpus
from sft.run.trained_data import TrainedData, check_unchanged
from soul.chat.template_file import shipped
from soul.errors import Mistakes
from soul.evaluate.run.settings import choose_sets
from soul.files.disk_writes import check_writable
from soul.rows.task_files import read_rows
from soul.table import Table

TOKENS, CHECKPOINTING = "data.max_token_len_per_gpu", "model.enable_gradient_checkpointing"  # null: open, on a CPU
EXPENSIVE = 1.2  # from here on, the plan says what the expansion comes from


def data_settings(config: DictConfig) -> SftDataSettings:
    """The keys of the section `data` that describe the corpus."""
    data = OmegaConf.to_container(config.data, resolve=True)
    assert isinstance(data, dict)
    given: dict[str, Any] = {name: data[name] for name in SftDataSettings.model_fields if name in data}
    given["cache_dir"] = given.get("cache_dir") or Path(config.run.dir).parent / "sft_cache"
    return SftDataSettings.model_validate(given)


def load_corpora(config: DictConfig) -> tuple[Corpus, Corpus | None]:
    """The training and the validation split, tokenised by the model's tokenizer."""
    from transformers import AutoConfig

    path, trust = str(config.model.path), bool(config.model.trust_remote_code)
    tokenizer = load_training_chat(config).tokenizer
    model = AutoConfig.from_pretrained(path, trust_remote_code=trust)
    context = getattr(getattr(model, "text_config", model), "max_position_embeddings", None)
    settings = data_settings(config)
    train = open_corpus(settings, tokenizer, "train", context)
    assert train is not None  # open_corpus raises if there is no training split
    return train, open_corpus(settings, tokenizer, "val", context)


def load_training_chat(config: DictConfig) -> Chat:
    """The model's tokenizer with the chat template of the training run."""
    model, kwargs = config.model, data_settings(config).apply_chat_template_kwargs
    return load_chat(
        str(model.path),
        bool(model.trust_remote_code),
        "model.path",
        model.chat_template,
        "model.chat_template",
        kwargs,
    )


def check(config: DictConfig, choice: ResumeChoice | None) -> str:
    """Check everything but the config's values and the checkpoint (`choice`; None: another node decides).

    On a CPU, what the config leaves open is chosen here. Returns the plan, for people.
    """
    trainer, data = config.trainer, config.data
    run = SftRun(config)
    ranks = run.devices
    folders = {str(data_settings(config).cache_dir): "data.cache_dir"}
    folders |= {trainer.default_local_dir: "trainer.default_local_dir", config.run.dir: "run.dir"}  # each folder once
    path, trust = str(config.model.path), bool(config.model.trust_remote_code)
    found = Mistakes()
    with found.of():
        _check_devices(trainer)
    for folder, setting in folders.items():
        with found.of():
            check_writable(folder, setting)
    with found.of():
        chat = load_training_chat(config)
        check_vocabulary(path, trust, "model.path", chat.tokenizer)
    with found.of():
        check_weights(path, trust, "model.path")
    with found.of():
        adapted = check_adapter(config.model, "model")
    found.report()
    check_gpu(config)
    check_packing(config.model, "model")
    tested = str(trainer.rl_test_files or "").split()
    read_rows([str(file) for file in choose_sets(tested, Path("data")).values()] if tested else [])  # raises
    train, val = load_corpora(config)
    corpora = [corpus for corpus in (train, val) if corpus]
    for corpus in corpora:
        _check_documents(config, corpus)
    check_head(config.model, "model")
    steps = trainer.total_training_steps or trainer.total_epochs * -(-len(train.order) // data.train_batch_size)
    passes = steps * data.train_batch_size / len(train.order)
    lines = [
        f"{config.model.path} on {ranks} devices, {steps:,} steps of {data.train_batch_size:,} rows: "
        f"{passes:,.2f} epochs of {len(train.order):,} rows",
        f"run folder {config.run.dir}, {_begin(choice)}",
        *chat.format.notes,
        *([f"LoRA adapts {', '.join(adapted)}"] if adapted else []),
    ]
    if choice and choice.folder:
        now = TrainedData.from_run(config, data_settings(config), train)
        lines += check_unchanged(choice.folder, now, path, bool(trainer.resume_changed))
        before = run_json.earlier(Path(config.run.dir) / run_json.FILE).get("config", {})
        earlier = before.get("trainer", {}).get("total_training_steps")
        if earlier not in (None, steps) and config.optim.lr_scheduler_type != "constant":
            lines.append(
                f"{earlier} steps in all are now {steps}, so the learning rate jumps to the schedule of that length"
            )
        if choice.step >= steps:
            lines.append(
                f"NOTHING IS LEFT TO TRAIN: {steps} steps are done. For more, raise trainer.total_training_steps"
            )
    size = sum(corpus.stored_bytes for corpus in corpora) / (1 << 30)
    tokens = f"tokens in {data_settings(config).cache_dir}: {size:.2f} GiB"
    if tested:
        often = f"every {trainer.rl_test_freq} steps" if trainer.rl_test_freq else "never (trainer.rl_test_freq)"
        lines.append(f"a generative test of {', '.join(tested)} {often}")
    lines += [tokens, *check_memory(config, run.longest), _expansion(config, train), _table(train, "train")]
    return "\n".join([*lines, *([_table(val, "val")] if val else [])])


def check_memory(config: DictConfig, longest: int) -> list[str]:
    """The memory plan of the only phase, the update, for people. On a CPU, what the config leaves open is chosen here.

    Args:
        longest: tokens of the longest sequence; a micro-batch must be able to hold it.

    Raises:
        BadConfig: the run does not fit.
    """
    model, data, gpu = model_of(config.model), config.data, gpu_size(config)

    def training(of: DictConfig) -> Training:
        return training_of(model, of.model, of.engine, of.trainer)

    def plan(of: DictConfig) -> MemoryPlan:
        tokens = int(of.data.max_token_len_per_gpu)
        phases = {f"update ({tokens:,} tokens)": training(of).update(tokens)}
        return MemoryPlan(model, gpus_in_words(of.trainer, gpu), phases, gpu[0])

    if config.trainer.device != "cpu":
        limits = lower_limits(int(data.max_token_len_per_gpu), longest)
        values = {TOKENS: limits, "engine.offload_policy": [config.engine.offload_policy, True]}
        return check_fit(config, values, plan)
    devices = int(config.trainer.n_gpus_per_node)
    step_tokens = -(-data.train_batch_size // (devices * config.trainer.nnodes)) * longest

    def needed(how: Training, tokens: int) -> dict[str, int]:
        process = cpu.process_bytes(how, min(tokens, step_tokens), config.checkpoint.save_contents)
        return {"trainer": devices * process, "processes": (devices + 1) * cpu.DEVICE_PROCESSES}  # the launcher, too

    chosen = cpu.choose(training(config), data.max_token_len_per_gpu, longest, needed, "model.lora_rank")
    config.model.enable_gradient_checkpointing, data.max_token_len_per_gpu, lines = chosen
    return lines


def _check_devices(trainer: DictConfig) -> None:
    """Refuse more processes than this machine shows GPUs. One without any may check a run for another machine."""
    shown = 0 if trainer.device == "cpu" else torch.cuda.device_count()  # occupies no GPU memory
    if not 0 < shown < trainer.n_gpus_per_node:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = f" (CUDA_VISIBLE_DEVICES={visible})" if visible else ""
    raise BadConfig(
        f"trainer.n_gpus_per_node={trainer.n_gpus_per_node}: this machine shows {shown} of them{chosen}, and each "
        f"process needs one. Set N_GPUS={shown}, or ask for more GPUs (of Slurm, or in CUDA_VISIBLE_DEVICES)."
    )


def _expansion(config: DictConfig, train: Corpus) -> str:
    """A line for the plan: how many tokens the template costs beyond one rendering of each row."""
    tokens, rendered = (
        sum(getattr(counts, name) for counts in train.sources.values()) for name in ("tokens", "rendered_tokens")
    )
    line = f"expansion {tokens / rendered:,.2f}: {tokens:,} tokens, {rendered:,} in one rendering of each row"
    if tokens <= rendered * EXPENSIVE:
        return line
    advice = "" if config.model.chat_template else f" (model.chat_template={' or '.join(shipped())}, or a file)"
    return (
        f"{line}. The chat template renders turns differently once later turns follow, so a row becomes several "
        f"sequences. A template that does not keeps it whole{advice}."
    )


def _begin(choice: ResumeChoice | None) -> str:
    """Say where the run starts, and the checkpoints that it sets aside."""
    if choice is None:
        return "starts at the checkpoint that the first node chooses"
    begin = f"resumes after step {choice.step}" if choice.folder else "starts at step 1"
    return "".join([begin, *(f"\nset aside: {path} ({reason})" for path, reason in choice.skipped.items())])


def _check_documents(config: DictConfig, corpus: Corpus) -> None:
    """Refuse documents that share sequences if the model would not keep them apart."""
    if config.model.use_remove_padding or not any(DOCUMENT in counts.roles for counts in corpus.sources.values()):
        return
    raise BadConfig(
        "model.use_remove_padding=False: the documents of this corpus share sequences, and in padded rows they would "
        "see each other. Leave it true."
    )


def _table(corpus: Corpus, split: str) -> str:
    """The rows of a split by source: how many are trained, how many are left out and why."""
    head = ("source", "trained turns: rows", "rows", "sequences", "tokens", "trained tokens", "left out")
    lines = []
    for name, counts in corpus.sources.items():
        trained = "\n".join(f"{side}: {rows:,}" for side, rows in counts.roles.most_common())
        numbers = (counts.rows, counts.sequences, counts.tokens, counts.trained_tokens)
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in counts.left_out.most_common())
        lines.append([name, trained, *(f"{number:,}" for number in numbers), left_out])
    console = Console(width=max(120, Console().width))
    with console.capture() as captured:
        console.print(Table(head, lines, words=frozenset({1, len(head) - 1})).rich(split))
        for reason, example in corpus.examples.items():
            console.print(f"{reason}, for example: {example}", markup=False)
    return captured.get().rstrip()
