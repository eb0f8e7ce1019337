"""What a user can get wrong in the command of a training, one row for each kind of mistake.

`RL_COMMANDS` and `SFT_COMMANDS`: words that stand behind those of a good dry run, so that they win. `MODELS`: folder ->
what the message names. `LAUNCHED`: variables of the launchers. The types and ranges of single keys are tested in
tests/ditto/config_checks/test_keys.py, the rules in test_rl_rules.py beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.mistakes.mistake import SECRET, Mistake

ROLLOUT, MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"


def rows(cases: dict[str, Sequence[str]]) -> list[Mistake]:
    """A mistake for each word, and what the user reads."""
    return [Mistake(word.replace(SECRET, "SECRET"), [word], expects=expects) for word, expects in cases.items()]


WORDS = rows(
    {
        "algorithm.objektive=ditto": ["algorithm.objektive", "algorithm.objective?", "--cfg"],
        "algorithm.objective=dito": ["algorithm.objective='dito'"],
        "trainer.save_freq=-5": ["trainer.save_freq=-5: use whole number from -1"],
        "trainer.save_freq": ["trainer.save_freq", "key=value"],
        "=5": ["=5"],
        "refine=null": ["refine=null: refine is a section"],
        "data.train_files=[a.parquet": ["data.train_files", "quotes"],
        "platform=tpu": ["tpu", "cpu", "gpu"],
        "--dry-run": ["--dry-run is not an option"],
        "--config-name": ["--config-name needs a value"],
        f"~{ROLLOUT}.n": [f"{ROLLOUT}.n", "removed"],
        "actor_rollout_ref.actor.optim.lr=1e-6,1e-5": ["one value per key"],
        "run.dir=${oc.env:NO_SUCH_VARIABLE}": ["NO_SUCH_VARIABLE", "run.dir=${"],
        "run.dir=${run.dir}": ["run.dir"],
        "tasks.coser.merged=true": ["coser", "merged"],
        "tasks.cosr.merged_dimensions=true": ["cosr"],
        "data.mixture.weights.hitom=-1": ["data.mixture.weights", "hitom"],
        "data.mixture.weights.hitomm=1": ["Did you mean 'hitom'"],
        "judge.by_task.hitomm.model=a": ["hitomm"],
        "judge.base_url=ftp://127.0.0.1/v1": ["ftp://127.0.0.1/v1"],
        "judge.base_url=http://127.0.0.1:9/v1": ["http://127.0.0.1:9/v1"],
        "judge.budget_usd=5": ["price_in"],
        f"{ROLLOUT}.tensor_model_parallel_size=2": [f"{ROLLOUT}.tensor_model_parallel_size=2", "divide"],
        f"{MODEL}.path=nobody/nothing": ["nobody/nothing", "ACTOR_MODEL_PATH"],
        f"{MODEL}.path={{w}}/models/cut": [f"{MODEL}.path", "truncated"],
        f"{MODEL}.external_lib=no.such.module": [f"{MODEL}.external_lib"],
        "run.dir='{w}/a file/run'": ["run.dir={w}/a file/run", "is a file"],
        "judge.cache_dir='{w}/a file/x'": ["judge.cache_dir"],
        "trainer.upload_to=warehouse://x": ["trainer.upload_to=", "fsspec"],
        "trainer.upload_to='s3://me:a-password@bucket/run'": ["trainer.upload_to holds", "environment variable"],
        "trainer.total_epochs=3": ["would end after 3 steps", "total_training_steps=200"],
        f"{ROLLOUT}.max_model_len=10000000": ["positions", "max_model_len=10000000"],
        "data.train_batch_size=8": ["data.train_batch_size=8", "4 rows"],
        "data.max_prompt_length=20": ["good.parquet, row 0", "max_prompt_length=20"],
        "data.train_files=null": ["data.train_files"],
        "data.train_files=[{w}/good.parquet,{w}/good.parquet]": ["twice"],
        "data.val_files=[{w}/good.parquet]": ["allow_overlap"],
        "data.val_files=[{w}/seen.parquet]": ["good.parquet", "--without-overlap"],
    }
)
FILES = [
    Mistake(file, [f"data.train_files=[{{w}}/{file}]"], expects=[file, *expects])
    for file, expects in {
        "none.parquet": ["no such file", "TRAIN_FILES"],
        "truncated.parquet": ["not a readable parquet"],
        "no_rows.parquet": ["no rows"],
        "talks.parquet": ["data_source"],
        "task.parquet": ["row 0", "data_source"],
        "field.parquet": ["row 0, field question"],
        "gold.parquet": ["row 0, field correct_answer"],
        "type.parquet": ["row 0, field story"],
    }.items()
]
TEACHERS = [
    Mistake(
        f"teachers={teachers}",
        ["algorithm.objective=on_policy_distillation", f"algorithm.distill.teachers={{{teachers}}}"],
        expects=expects,
    )
    for teachers, expects in {
        "sotopia: '{w}/model'": ["tasks without a teacher (hitom)", "default"],
        "hitom: '{w}/model', coser: '{w}/model'": ["for coser", "data.train_files"],
        "default: '{w}/models/cut'": ["teachers.default", "model.safetensors"],
        "hitom: '{w}/models/adapter'": ["teachers.hitom", "BadConfig"],
        "hitom: '{w}/other_words'": ["teachers.hitom", "tokenizer gives other ids", "sft.distill"],
    }.items()
]
SECRETS = rows(
    dict.fromkeys(
        [
            f"+judge.api_key={SECRET}",
            f"judge.key={SECRET}",
            f"judge.by_task={{coser:{{api_key:{SECRET}}}}}",
            f"judge.jury=[{{api_key:{SECRET}",
            f"judge.api_key_env={SECRET}",
            f"OPENAI_API_KEY={SECRET}",
            f"judge.base_url=http://user:{SECRET}@127.0.0.1:9/v1",
            f"judge.base_url='http://127.0.0.1:9/v1?key={SECRET}'",
            f"judge.model={SECRET}",
            SECRET,
        ],
        ["api_key_env"],
    )
)
RL_COMMANDS = [
    *WORDS,
    *FILES,
    *TEACHERS,
    *SECRETS,
    Mistake("no key", environment={"OPENAI_API_KEY": ""}, expects=["OPENAI_API_KEY"]),
    Mistake("a config file that is missing", ["--config-name", "nothere"], expects=["no file nothere.yaml"]),
    Mistake("a config folder that is missing", ["--config-dir", "{w}/nowhere"], expects=["no such folder"]),
    Mistake(
        "GPUs that are too small",
        ["platform=gpu", "memory.gpu_gib=5"],
        expects=["does not fit on 8 GPUs of 5.0 GiB", "use larger GPUs"],
    ),
]
MODELS: dict[str, list[str]] = {
    "models/no_weights": ["no weights"],
    "models/cut": ["model.safetensors", "truncated"],
    "models/lfs_pointer": ["model.safetensors", "git lfs pull"],
    "models/lacks_shard": ["model-00002-of-00002.safetensors is missing"],
    "models/cut_shard": ["model-00002-of-00002.safetensors", "truncated"],
    "models/no_index": ["neither model.safetensors nor model.safetensors.index.json"],
    "models/lacks_tensor": ["lack model.layers.1.mlp.up_proj.weight", "random"],
    "models/torch_file": ["pytorch_model.bin", "truncated"],
    "models/no_tokenizer": ["the tokenizer has no vocabulary"],
    "models/no_template": ["the tokenizer has no chat template"],
    "models/broken_template": ["the chat template fails", "chat_template.jinja"],
    "models/broken_config": ["config.json"],
    "models/unknown_type": ["qwen99"],
    "models/wider": ["has the shape", "config.json asks for"],
    "models/adapter": ["LoRA adapter", "Qwen/Qwen3-8B"],
    "no-model": ["neither an existing folder nor a model that the hub knows"],
    "a file": ["a file and not a folder"],
}
SFT_FILES = [
    Mistake(file, [f"data.train_files='{{w}}/{file}'"], expects=expects)
    for file, expects in {
        "nowhere/*.parquet": ["nowhere/*.parquet"],
        "none.parquet": ["none.parquet"],
        "truncated.parquet": ["truncated.parquet"],
        "no_talks.parquet": ["no rows", "data.train_files"],
        "good.parquet": ["good.parquet", "messages"],
        "messages_keys.parquet": ["messages_keys.parquet"],
        "empty_turn.parquet": ["empty_turn.parquet", "row 0"],
        "role.parquet": ["role.parquet", "row 0"],
        "talks.parquet:twice": ["twice"],
        "talks.parquet:0": ["talks.parquet:0"],
        "talks.parquet {w}/talks.parquet": ["talks.parquet", "twice"],
        "pictures.parquet": ["'images'", "text only"],
    }.items()
]
SFT_COMMANDS = [
    *SFT_FILES,
    *rows(
        {
            "data.max_promt_length=5": ["data.max_prompt_length?", "train_sft.py --cfg"],
            "data.messages_key=messages": ["data.messages_key is not read", "docs/sft.md"],
            "optim.lr=0": ["optim.lr=0: use number above 0"],
            "trainer=5": ["trainer is a section"],
            "trainer.resume_from_path=x/global_step_3": ["resume_from_path", "resume_mode"],
            "trainer.rl_test_freq=5": ["rl_test_files"],
            "checkpoint.save_lora_only=true": ["model.lora_rank"],
            "data.default_train_role=null": ["talks.parquet", "a column train_role"],
            "model.chat_template=gone.jinja": ["gone.jinja", "qwen3"],
            "model.chat_template=qwen3": ["chat_template", "<think>"],
            "model.chat_template={w}/bad.jinja": ["fails", "model.chat_template"],
            "model.path={w}/models/cut": ["model.path=", "truncated"],
            "run.dir='{w}/a file/run'": ["run.dir={w}/a file/run", "is a file"],
            "data.cache_dir='{w}/a file/cache'": ["a file", "data.cache_dir"],
            "trainer.upload_to=warehouse://x": ["trainer.upload_to=warehouse://x", "fsspec"],
            f"trainer.wandb_api_key={SECRET}": ["environment"],
            f"trainer.rl_test_arguments=[judge.api_key={SECRET}]": ["environment"],
        }
    ),
    Mistake("a folder without shards", ["data.train_files=null", "data.dir={w}/empty"], expects=["empty", "DATA_DIR"]),
    Mistake(
        "all rows too long", ["data.max_prompt_length=2", "data.max_response_length=2"], expects=["max_prompt_length"]
    ),
    Mistake(
        "more positions than the model has",
        ["data.max_prompt_length=9000", "data.max_token_len_per_gpu=20000"],
        expects=["8,192"],
    ),
]
LAUNCHED = [
    Mistake("an unknown task", ["--task", "hitomm"], expects=["Did you mean 'hitom'"]),
    Mistake("no task", ["--task", ","], expects=["No task is named"]),
    *(
        Mistake(f"{variable}={value!r}", environment={variable: value}, expects=expects)
        for variable, value, expects in [
            ("PLATFORM", "tpu", ["PLATFORM=tpu", "cpu"]),
            ("DRY_RUN", "perhaps", ["DRY_RUN=perhaps", "1 or 0"]),
            ("EXPERIMENT_NAME", "a${b}", ["EXPERIMENT_NAME", "${"]),
            ("OUTPUT_DIR", "{w}/a file", ["OUTPUT_DIR={w}/a file"]),
            ("TRAIN_FILES", "'a.parquet", ["TRAIN_FILES", "quote"]),
            ("TRAIN_FILES", "x.parquet", ["x.parquet"]),
        ]
    ),
    Mistake(
        "a key in the judge's address",
        environment={"OPENAI_BASE_URL": f"http://u:{SECRET}@127.0.0.1:9/v1"},
        expects=["OPENAI_BASE_URL"],
    ),
]
SFT_LAUNCHED = [
    Mistake("N_GPUS=1.5", environment={"N_GPUS": "1.5"}, expects=["N_GPUS=1.5", "whole number"]),
    Mistake("N_GPUS=0", environment={"N_GPUS": "0"}, expects=["trainer.n_gpus_per_node=0"]),
    Mistake("files that match nothing", environment={"TRAIN_FILES": "x/*.parquet"}, expects=["x/*.parquet"]),
]
