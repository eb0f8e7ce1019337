"""Supervised training on verl's SFT trainer: its engine, loss, optimizer; our data, checkpoints, validation, metrics.

verl's loss is the negative log-likelihood summed over the trained tokens of a step and divided by their number over all
ranks, so micro-batches, ranks and packing do not change it. The step alone determines the order of the data
(sft/corpus/order.py): a resumed run needs no other state, and verl's saved loaders are not used.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict.tensorclass import NonTensorData
from torch.utils.data import DataLoader
from tqdm import tqdm
from verl.trainer.config import CheckpointConfig
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import SFTTensorCollator
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group
from verl.utils.memory_utils import aggressive_empty_cache
from verl.utils.tracking import Tracking

from ditto.run import run_json
from ditto.run.finite_steps import FiniteSteps, are_finite
from ditto.run.run_folder import RunFolder, set_logger_folders
from ditto.verl_hooks import plugin
from sft.config_checks import AFTER_EACH_EPOCH
from sft.corpus.batches import StepBatches, ValidationBatches
from sft.preflight import data_settings, load_corpora, load_training_chat
from sft.run import stop
from sft.run.checkpoints import Checkpoints
from sft.run.soul_probe import GenerativeTest
from sft.run.trained_data import TrainedData
from soul.files.disk_writes import guarded_writes

logger = logging.getLogger(__name__)
PATIENCE = timedelta(days=1)  # the other ranks wait this long while one of them evaluates


class SupervisedTrainer(SFTTrainer):
    """One process of a supervised training."""

    config: DictConfig
    checkpoint_config: CheckpointConfig

    def _build_config(self) -> None:
        own = self.config
        self.config = own.copy()
        with open_dict(self.config):
            self.config.model.pop("chat_template")  # a key that verl does not know
            self.config.trainer.profile_interval = [-1, -1]  # verl reads these two, and we do not profile
            self.config.profiler = {"_target_": "verl.utils.profiler.ProfilerConfig", "tool_config": {}}
        super()._build_config()
        self.config = own
        # The checkpoint saves these two, so the model is served with the template that it was trained with.
        template = load_training_chat(own).tokenizer.chat_template
        for saved in (self.model_config.tokenizer, self.model_config.processor):
            if saved is not None:
                saved.chat_template = template
        if self.checkpoint_config.save_lora_only:
            parts = [part for part in self.checkpoint_config.save_contents if part != "hf_model"]
            self.checkpoint_config = replace(self.checkpoint_config, save_contents=parts)

    def _build_dataset(self) -> None:
        self.train_corpus, self.val_corpus = load_corpora(self.config)

    def _build_dataloader(self) -> None:
        data = self.config.data
        self.global_batch_size = data.train_batch_size
        self.collate_fn = SFTTensorCollator(data.pad_mode)
        self.ranks, self.dp_rank = self.engine.get_data_parallel_size(), self.engine.get_data_parallel_rank()

    def _init_engine(self) -> None:
        trainer = self.config.trainer
        steps_per_epoch = -(-len(self.train_corpus.order) // self.global_batch_size)
        self.total_training_steps = trainer.total_training_steps or trainer.total_epochs * steps_per_epoch
        self.optimizer_config.total_training_steps = self.total_training_steps
        torch.manual_seed(trainer.seed)  # new weights: rank 0 makes them for all ranks
        self.training_client.reset()
        torch.manual_seed(trainer.seed + dist.get_rank())  # dropout

    def _build_ckpt_handler(self) -> None:
        data = TrainedData.from_run(self.config, data_settings(self.config), self.train_corpus)
        self.checkpoints = Checkpoints(self.engine, self.config, self._get_lora_train_meta(), data)
        self.ckpt_handler = self.checkpoints  # the name that verl reads

    # ---- the run -----------------------------------------------------------------------------------------------

    @property
    def _leads(self) -> bool:
        return self.engine.is_mp_src_rank_with_outputs() and self.dp_rank == 0

    def fit(self) -> int:
        """Train from the step after the checkpoint to the last step.

        Returns:
            The signal that stopped the training early; 0 if the last step is done.
        """
        trainer, done = self.config.trainer, self.resume_global_step
        finite = FiniteSteps()
        self.run_folder = RunFolder(Path(self.config.run.dir))
        self.generative = GenerativeTest.from_config(self.config)
        self.waiting = dist.new_group(backend="gloo", timeout=PATIENCE)
        if self._leads:
            total = OmegaConf.create({"trainer": {"total_training_steps": self.total_training_steps}})
            settings = run_json.shown(OmegaConf.merge(self.config, total))
            facts = {"objective": "sft", "seed": trainer.seed, "hosts": trainer.nnodes, "config": settings}
            run_json.write_facts(self.run_folder.folder, done, facts)
        self.tracking = self._tracking() if self._leads else None
        if done:
            self._complete_metrics(done)
            dist.barrier(self.waiting)
        steps = range(done + 1, self.total_training_steps + 1)
        shown = tqdm(zip(steps, self._batches(done + 1), strict=True), total=len(steps), disable=not self._leads)
        stopping = self._stop_asked()
        for step, batch in shown if not stopping else ():
            metrics = self._train_step(batch)
            finite.note(step, self._is_finite(metrics))
            if self._validates(step):
                metrics |= self._validate()
            if self.tracking:
                shown.set_postfix(loss=f"{metrics['train/loss']:.3f}")
            self._log(step, metrics)  # before the checkpoint: a published step must have its metrics
            stopping, tests = self._stop_asked(), self._tests(step)
            if finite.in_a_row:
                finite.check(step, step == self.total_training_steps, self.checkpoints.root)
                if stopping:
                    break
                continue
            # Always save the last step, whatever save_freq is.
            if tests or stopping or step == self.total_training_steps or self._due(step, trainer.save_freq):
                self.checkpoints.save(step)
                dist.barrier(self.waiting)
                if tests and not stopping:
                    self._log(step, self._test(self.checkpoints.root / f"global_step_{step}", step))
                    stopping = self._stop_asked()
            if stopping:
                if self._leads:
                    logger.info("stopping after step %d of %d", step, self.total_training_steps)
                break
        return stopping

    def _is_finite(self, metrics: dict[str, float]) -> bool:
        """True if the loss and the gradient of a step are finite on all ranks. Every rank must call this."""
        flag = torch.tensor(int(are_finite(metrics, "train/loss", "train/grad_norm") is not False))
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        return bool(flag)

    def _validates(self, step: int) -> bool:
        return self.val_corpus is not None and self._due(step, self.config.trainer.test_freq)

    def _tests(self, step: int) -> bool:
        return self.generative is not None and self._due(step, self.config.trainer.rl_test_freq)

    def _due(self, step: int, frequency: int | str) -> bool:
        if frequency == AFTER_EACH_EPOCH:
            return step == self.total_training_steps or self._epochs(step) > self._epochs(step - 1)
        return int(frequency) > 0 and (step == self.total_training_steps or step % int(frequency) == 0)

    def _epochs(self, steps: int) -> int:
        """Epochs that are complete after so many steps; a step may end one epoch and begin the next."""
        return steps * self.global_batch_size // len(self.train_corpus.order)

    def _stop_asked(self) -> int:
        """The signal that stops all ranks at this point; 0: none. Every rank must call this."""
        flag = torch.tensor(stop.requested())
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return int(flag)

    def _complete_metrics(self, step: int) -> None:
        """Run the validation and generative test that the checkpoint's step lacks if the run ended before them."""
        lines = [self.run_folder.metrics_of(step) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(lines, src=0)
        (line,) = lines
        if not line:  # the checkpoint of another run
            return
        if self._validates(step) and "val/loss" not in line:
            self._log(step, self._validate())
        if self._tests(step) and "val/rl_test_failed" not in line:
            self._log(step, self._test(self.checkpoints.root / f"global_step_{step}", step))

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        if self.tracking and metrics:
            self.tracking.log(data=metrics, step=step)
            with guarded_writes(self.run_folder.folder):
                self.run_folder.log_metrics(step, metrics)

    def _tracking(self) -> Tracking:
        trainer = self.config.trainer
        plain = OmegaConf.to_container(self.config, resolve=True)
        loggers = [trainer.logger] if isinstance(trainer.logger, str) else list(trainer.logger)
        set_logger_folders(self.run_folder.folder, loggers)
        return Tracking(trainer.project_name, trainer.experiment_name, loggers, plain)

    def _batches(self, first: int) -> Iterator[dict[str, Any]]:
        """Yield this rank's part of each step's sequences."""
        corpus, last = self.train_corpus, self.total_training_steps
        plan = StepBatches(corpus, self.global_batch_size, self.dp_rank, self.ranks, first - 1, last)
        workers = self.config.data.num_workers
        yield from DataLoader(
            corpus.dataset,
            batch_sampler=plan,
            num_workers=workers,
            collate_fn=self.collate_fn,
            persistent_workers=False,
            multiprocessing_context="spawn" if workers else None,
            worker_init_fn=stop.start_helper if workers else None,
        )

    def _train_step(self, batch: dict[str, Any]) -> dict[str, float]:
        start = time.perf_counter()
        data = self._tensordict(batch)
        trained = self._sum(data["loss_mask"].values().sum())
        lengths = self._get_batch_seqlens(data)
        tu.assign_non_tensor(data, update_lr_scheduler=True, global_token_num=NonTensorData(lengths))
        lr = float(self.engine.optimizer.param_groups[0]["lr"])
        output = self.training_client.train_batch(data)
        metrics = dict(tu.get(output, "metrics")) if output is not None else {}
        metrics["lr"] = lr  # verl reports the rate of the next step
        seconds = time.perf_counter() - start
        return {
            **{f"train/{key}": float(metrics.pop(key)) for key in ("loss", "grad_norm", "lr", "mfu") if key in metrics},
            **{key: float(value) for key, value in metrics.items() if isinstance(value, int | float)},
            "train/tokens": float(sum(lengths)),
            "perf/tokens_per_second": sum(lengths) / seconds,
            "timing_s/step": seconds,
            "train/trained_tokens": trained,
        }

    def _tensordict(self, batch: dict[str, Any]) -> Any:
        model, data = self.config.model, self.config.data
        settings = {
            "use_remove_padding": model.use_remove_padding,
            "use_dynamic_bsz": True,  # micro-batches are filled by tokens, never by a number of sequences
            "max_token_len_per_gpu": data.max_token_len_per_gpu,
            "temperature": 1.0,
            "global_batch_size": self.global_batch_size,
            "pad_mode": data.pad_mode,
            "pad_token_id": self.model_config.tokenizer.pad_token_id,
        }
        return tu.get_tensordict(tensor_dict=batch, non_tensor_dict=settings)

    def _validate(self) -> dict[str, float]:
        """The loss of each validation source: the mean over all its trained tokens. Empty if a stop is requested."""
        assert self.val_corpus is not None
        loss: dict[str, float] = {}
        tokens: dict[str, float] = {}
        plan = ValidationBatches(self.val_corpus, self.global_batch_size, self.dp_rank, self.ranks)
        if self._leads:
            logger.info("validating on %d batches of %d sources", len(plan), len(set(plan.sources)))
        loader = DataLoader(self.val_corpus.dataset, batch_sampler=plan, collate_fn=self.collate_fn)
        for source, batch in zip(plan.sources, loader, strict=True):
            if self._stop_asked():
                return {}
            data = self._tensordict(batch)
            trained = self._sum(data["loss_mask"].values().sum())
            output = self.training_client.infer_batch(data)
            mean = float(tu.get(output, "metrics")["loss"]) if output is not None else 0.0
            loss[source] = loss.get(source, 0.0) + mean * trained
            tokens[source] = tokens.get(source, 0.0) + trained
        by_source = {f"val/loss/{source}": loss[source] / tokens[source] for source in loss}
        return {"val/loss": sum(loss.values()) / sum(tokens.values()), **by_source}

    def _sum(self, count: torch.Tensor) -> float:
        total = count.to(self.device_name).double()
        dist.all_reduce(total, group=self.engine.get_data_parallel_group())
        return float(total)

    def _test(self, folder: Path, step: int) -> dict[str, float]:
        """Run the generative test on rank 0 while the other ranks wait."""
        assert self.generative is not None
        with self._device_left():
            numbers = self.generative.run(folder, step) if dist.get_rank() == 0 else {}
            dist.barrier(self.waiting)
        return numbers

    @contextmanager
    def _device_left(self) -> Iterator[None]:
        """Leave the device's memory to another program meanwhile."""
        # With offload_policy, weights and optimizer are on the host, and must not be moved from there: FSDP2 updates
        # them on the CPU. Only what the allocator has kept is to be freed.
        moves = self.device_name != "cpu" and not self.config.engine.offload_policy
        if moves:
            self.engine.to("cpu")
        aggressive_empty_cache()
        yield
        if moves:
            self.engine.to(self.device_name)


def train(config: DictConfig) -> int:
    """Do the work of one process. Returns the exit code: 0, or 143 or 130 if SIGTERM or Ctrl-C stopped it."""
    plugin.require(config.trainer.device)
    initialize_global_process_group()
    stopped_by = SupervisedTrainer(config=config).fit()
    destroy_global_process_group()
    return 128 + stopped_by if stopped_by else 0
