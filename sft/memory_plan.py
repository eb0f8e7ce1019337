"""The memory plan of supervised training: a single phase, the update, with everything on the GPU or in host memory."""

from omegaconf import DictConfig

from ditto.memory import cpu
from ditto.memory.estimate import Training
from ditto.memory.plan import MemoryPlan, check_fit, gpu_size, gpus_in_words, lower_limits, model_of, training_of

TOKENS, CHECKPOINTING = "data.max_token_len_per_gpu", "model.enable_gradient_checkpointing"  # null: open, on a CPU


def check_memory(config: DictConfig, longest: int) -> list[str]:
    """The memory plan, for people. On a CPU, what the config leaves open is chosen, and written there.

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
