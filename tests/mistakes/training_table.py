"""What a user can get wrong in the command of a training.

`RL_COMMANDS` and `SFT_COMMANDS`: words that stand behind those of a good dry run, so that they win. `MODELS`: folder ->
what the message names. `LAUNCHED`: variables of the launchers. Wrong values of single keys: `training_values.py`.
"""

from __future__ import annotations

from tests.mistakes.mistake import SECRET, Mistake
from tests.mistakes.training_values import MODEL, OPTIM, ROLLOUT

RL_KEYS = [
    Mistake("a misspelt key", ["algorithm.objektive=ditto"], expects=["objektive", "--cfg"]),
    Mistake("a misspelt key with a plus", ["+trainer.total_trainig_steps=3"], expects=["total_training_steps"]),
    Mistake("a misspelt key of the judge", ["+judge.modell=gpt"], expects=["judge.modell"]),
    Mistake("a misspelt key of a task", ["+tasks.coser.merged=true"], expects=["coser"]),
    Mistake("a negative weight", ["+data.mixture.weights.hitom=-1"], expects=["data.mixture.weights", "hitom"]),
    Mistake("a weight that is no number", ["+data.mixture.weights.hitom=abc"], expects=["data.mixture.weights.hitom"]),
    Mistake("a weight of an unknown task", ["+data.mixture.weights.hitomm=1"], expects=["Did you mean 'hitom'"]),
    Mistake("an unknown value of a task", ["tasks.mirrorbench.assistant=me"], expects=["tasks.mirrorbench", "record"]),
    Mistake("options of an unknown task", ["+tasks.cosr.merged_dimensions=true"], expects=["cosr"]),
    Mistake("a key that nothing reads", ["algorithm.filter_groups.metric=acc"], expects=["filter_groups"]),
    Mistake("a word without a value", ["trainer.save_freq"], expects=["trainer.save_freq"]),
    Mistake("a value without a key", ["=5"], expects=["=5"]),
    Mistake("a blank between key and value", ["trainer.save_freq", "5"], expects=["trainer.save_freq"]),
    Mistake("an empty value", [f"{OPTIM}.lr="], expects=[f"{OPTIM}.lr"]),
    Mistake("a section that is a number", ["trainer=5"], expects=["trainer"]),
    Mistake("an own section that is a number", ["refine=5"], expects=["refine"]),
    Mistake("a section that is null", ["refine=null"], expects=["refine"]),
    Mistake("the data as null", ["data=null"], expects=["data"]),
    Mistake("the algorithm as a text", ["algorithm=ditto"], expects=["algorithm"]),
    Mistake("a number that gets a section", ["+data.train_batch_size.x=5"], expects=["data.train_batch_size"]),
    Mistake("a bracket that is left open", ["data.train_files=[a.parquet"], expects=["data.train_files"]),
    Mistake("a quote that is left open", ["trainer.experiment_name='a"], expects=["trainer.experiment_name"]),
    Mistake("an unknown platform", ["platform=tpu"], expects=["tpu", "cpu", "gpu"]),
    Mistake("an unknown option", ["--dry-run"], expects=["--dry-run"]),
    Mistake("an unknown config name", ["--config-name", "nothere"], expects=["nothere"]),
    Mistake("an unknown config folder", ["--config-dir", "{w}/nowhere"], expects=["nowhere"]),
    Mistake("a config folder that is a file", ["--config-dir", "{w}/a file"], expects=["a file"]),
    Mistake("an option without its value", ["--config-name"], expects=["--config-name"]),
    Mistake("a key that is deleted", ["~actor_rollout_ref.rollout.n"], expects=["actor_rollout_ref.rollout.n"]),
    Mistake("a section that is deleted", ["~trainer"], expects=["trainer"]),
    Mistake("a sweep", [f"{OPTIM}.lr=1e-6,1e-5"], expects=[f"{OPTIM}.lr"]),
    Mistake("a variable that is not set", ["run.dir=${oc.env:NO_SUCH_VARIABLE}"], expects=["NO_SUCH_VARIABLE"]),
    Mistake("an interpolation of nothing", ["run.dir=${no.such.key}"], expects=["no.such.key"]),
    Mistake("an interpolation of itself", ["run.dir=${run.dir}"], expects=["run.dir"]),
    Mistake("an unknown resolver", ["run.dir=${eval:1}"], expects=["eval"]),
    Mistake("the gateway itself", ["+gateway.x=1"], expects=["gateway"]),
    Mistake("a key of Hydra", ["hydra.run.dir=x"], expects=["hydra"]),
    Mistake("a list where files are a number", ["data.train_files=5"], expects=["data.train_files"]),
    Mistake("files as a dictionary", ["data.train_files={a:1}"], expects=["data.train_files"]),
    Mistake("n=1 where groups are compared", ["algorithm.objective=grpo", f"{ROLLOUT}.n=1"], expects=["advantage"]),
    Mistake("two GPUs of tensor parallelism on one", [f"{ROLLOUT}.tensor_model_parallel_size=2"], expects=["divide"]),
    Mistake("mixture as a list", ["data.mixture=[1,2]"], expects=["data.mixture"]),
    Mistake("an override of a list by an index", ["data.train_files[0]=a"], expects=["data.train_files"]),
]
RL_FILES = [
    Mistake(name, [f"data.train_files=[{{w}}/{file}]"], expects=[file.partition("/")[0], *expects])
    for name, file, expects in [
        ("a missing file", "none.parquet", ["no such file", "TRAIN_FILES"]),
        ("a folder for a file", "empty", ["folder"]),
        ("an empty file", "zero_bytes.parquet", ["not a readable parquet"]),
        ("a text for parquet", "text.parquet", ["not a readable parquet"]),
        ("a truncated file", "truncated.parquet", ["not a readable parquet"]),
        ("a file without rows", "no_rows.parquet", ["no rows"]),
        ("a missing column", "column.parquet", ["extra_info"]),
        ("an SFT corpus", "talks.parquet", ["data_source"]),
        ("an unknown task", "task.parquet", ["row 0", "data_source"]),
        ("another task's fields", "sotopia.parquet", ["row 0, field"]),
        ("a missing field", "field.parquet", ["row 0, field question"]),
        ("a wrong gold answer", "gold.parquet", ["row 0, field correct_answer"]),
        ("a wrong type", "type.parquet", ["row 0, field story"]),
        ("a null as task", "null_source.parquet", ["row 0, field data_source"]),
        ("a file's own rows as a path below it", "good.parquet/a.parquet", ["no such file"]),
    ]
] + [
    Mistake("no file", ["data.train_files=null"], expects=["data.train_files"]),
    Mistake("an empty list of files", ["data.train_files=[]"], expects=["data.train_files"]),
    Mistake("an empty name of a file", ["data.train_files=['']"], expects=["data.train_files"]),
    Mistake("no file to validate", ["data.val_files=null"], expects=["data.val_files"]),
    Mistake("an empty list to validate", ["data.val_files=[]"], expects=["data.val_files"]),
    Mistake("the same file twice", ["data.train_files=[{w}/good.parquet,{w}/good.parquet]"], expects=["twice"]),
    Mistake("training on what is validated", ["data.val_files=[{w}/good.parquet]"], expects=["allow_overlap"]),
    Mistake(
        "a story on both sides", ["data.val_files=[{w}/seen.parquet]"], expects=["good.parquet", "--without-overlap"]
    ),
    Mistake("a row too long", ["data.max_prompt_length=20"], expects=["good.parquet, row 0", "max_prompt_length=20"]),
    Mistake(
        "all rows too long",
        ["data.max_prompt_length=20", "data.filter_overlong_prompts=true"],
        expects=["good.parquet", "max_prompt_length=20"],
    ),
    Mistake("too few rows", ["data.train_batch_size=8"], expects=["data.train_batch_size=8", "4 rows"]),
    Mistake("weights that leave no row", ["+data.mixture.weights.hitom=0.01"], expects=["data.mixture"]),
]

_TAUGHT = "algorithm.objective=on_policy_distillation"
RL_TEACHERS = [
    Mistake(f"a teacher that {name}", [_TAUGHT, f"+algorithm.distill.teachers={{{teachers}}}"], expects=expects)
    for name, teachers, expects in [
        ("is of another task", "sotopia: '{w}/model'", ["tasks without a teacher (hitom)", "default"]),
        ("has no rows", "hitom: '{w}/model', coser: '{w}/model'", ["for coser", "data.train_files"]),
        ("has no rows left", "hitom: '{w}/model', default: '{w}/model'", ["for default"]),
        ("is missing", "default: '{w}/no-model'", ["teachers.default", "no such folder"]),
        ("is damaged", "default: '{w}/models/cut'", ["teachers.default", "model.safetensors"]),
        ("is an adapter", "hitom: '{w}/models/adapter'", ["teachers.hitom", "BadConfig"]),
        ("has other words", "hitom: '{w}/other_words'", ["teachers.hitom", "tokenizer gives other ids", "sft.distill"]),
    ]
]

MODELS: dict[str, list[str]] = {
    "models/no_weights": ["no weights"],
    "models/cut": ["model.safetensors", "truncated"],
    "models/zero_bytes": ["model.safetensors", "truncated"],
    "models/lfs_pointer": ["model.safetensors", "git lfs pull"],
    "models/lacks_shard": ["model-00002-of-00002.safetensors is missing"],
    "models/cut_shard": ["model-00002-of-00002.safetensors", "truncated"],
    "models/no_index": ["neither model.safetensors nor model.safetensors.index.json"],
    "models/broken_index": ["model.safetensors.index.json cannot be read"],
    "models/lacks_tensor": ["lack model.layers.1.mlp.up_proj.weight", "random"],
    "models/torch_file": ["pytorch_model.bin", "truncated"],
    "models/no_tokenizer": ["the tokenizer has no vocabulary"],
    "models/no_template": ["the tokenizer has no chat template"],
    "models/broken_template": ["the chat template fails", "chat_template.jinja"],
    "models/broken_config": ["config.json"],
    "models/no_type": ["model_type"],
    "models/unknown_type": ["qwen99"],
    "models/encoder": ["lack bert."],
    "models/wider": ["has the shape", "config.json asks for"],
    "models/deeper": ["num_hidden_layers"],
    "models/more_words": ["has the shape [320, 128]", "[9984, 128]"],
    "models/fewer_words": ["has the shape"],
    "models/adapter": ["LoRA adapter", "Qwen/Qwen3-8B"],
    "no-model": ["neither an existing folder nor a model that the hub knows"],
    "empty": ["an existing folder", "config.json"],
    "a file": ["a file and not a folder"],
}
OUTPUT = ["{w}/a file", "{w}/a file/run", "/proc/soul/run", "/sys/kernel/soul/run", "{w}/" + "x" * 300]
SECRETS = [
    Mistake(f"a key as {word.partition('=')[0]}", [word], expects=["api_key_env"])
    for word in [
        f"judge.api_key={SECRET}",
        f"+judge.api_key={SECRET}",
        f"++judge.api_key={SECRET}",
        f"judge.apikey={SECRET}",
        f"judge.key={SECRET}",
        f"+judge.token={SECRET}",
        f"feedback.api_key={SECRET}",
        f"+judge.by_task.coser.api_key={SECRET}",
        f"judge.by_task={{coser:{{api_key:{SECRET}}}}}",
        f"judge.jury=[{{model:a,api_key:{SECRET}}}]",
        f"judge.api_key_env={SECRET}",
        f"judge.api_key_evn={SECRET}",
        f"api_key={SECRET}",
        f"OPENAI_API_KEY={SECRET}",
        f"+trainer.wandb_api_key={SECRET}",
    ]
] + [
    Mistake("a key in the address", [f"judge.base_url=http://user:{SECRET}@127.0.0.1:9/v1"], expects=["api_key_env"]),
    Mistake(
        "a key in the address's query",
        [f"judge.base_url=http://127.0.0.1:9/v1?api_key={SECRET}"],
        expects=["api_key_env"],
    ),
    Mistake(
        "a key in the address's query, quoted",
        [f"judge.base_url='http://127.0.0.1:9/v1?key={SECRET}'"],
        expects=["api_key_env"],
    ),
    Mistake("a key as model", [f"judge.model={SECRET}"], expects=["api_key_env"]),
    Mistake("a key beside a broken bracket", [f"judge.jury=[{{api_key:{SECRET}"], expects=["api_key_env"]),
    Mistake("a key as a word", [SECRET], expects=["OPENAI_API_KEY"]),
]
JUDGE = [
    Mistake("an address that is none", ["judge.base_url=not-a-url"], expects=["not-a-url"]),
    Mistake("an address of another protocol", ["judge.base_url=ftp://127.0.0.1/v1"], expects=["ftp://127.0.0.1/v1"]),
    Mistake("a judge that is not there", ["judge.base_url=http://127.0.0.1:9/v1"], expects=["http://127.0.0.1:9/v1"]),
    Mistake("no key", environment={"OPENAI_API_KEY": ""}, expects=["OPENAI_API_KEY"]),
    Mistake(
        "an address that is no address",
        environment={"OPENAI_BASE_URL": "x"},
        words=["judge.base_url=null"],
        expects=["OPENAI_BASE_URL"],
    ),
    Mistake("a quorum above the jury", ["judge.jury=[a]", "judge.jury_quorum=3"], expects=["jury_quorum=3"]),
    Mistake("a budget without prices", ["judge.budget_usd=5"], expects=["price_in"]),
    Mistake("a judge of an unknown task", ["+judge.by_task.hitomm.model=a"], expects=["hitomm"]),
]
RL_COMMANDS = [
    *RL_KEYS,
    *RL_FILES,
    *RL_TEACHERS,
    *SECRETS,
    *JUDGE,
    Mistake(
        "a model whose weights are cut short",
        [f"{MODEL}.path={{w}}/models/cut"],
        expects=[f"{MODEL}.path", "truncated"],
    ),
    Mistake(
        "a model without a tokenizer",
        [f"{MODEL}.path={{w}}/models/no_tokenizer"],
        expects=[f"{MODEL}.path", "no vocabulary"],
    ),
    Mistake(
        "a hub id that is not there", [f"{MODEL}.path=nobody/nothing"], expects=["nobody/nothing", "ACTOR_MODEL_PATH"]
    ),
    Mistake("a run folder below a file", ["run.dir='{w}/a file/run'"], expects=["run.dir={w}/a file/run", "is a file"]),
    Mistake("an address of no store", ["trainer.upload_to=warehouse://x"], expects=["trainer.upload_to=", "fsspec"]),
    Mistake(
        "an address with a password",
        ["trainer.upload_to='s3://me:a-password@bucket/run'"],
        expects=["trainer.upload_to holds", "environment variable"],
    ),
    Mistake(
        "checkpoints below a file", ["trainer.default_local_dir='{w}/a file/x'"], expects=["trainer.default_local_dir"]
    ),
    Mistake("a verdicts' cache below a file", ["judge.cache_dir='{w}/a file/x'"], expects=["judge.cache_dir"]),
    Mistake("a module that is not there", [f"{MODEL}.external_lib=no.such.module"], expects=[f"{MODEL}.external_lib"]),
    Mistake(
        "GPUs too small",
        ["platform=gpu", "memory.gpu_gib=5"],
        expects=["does not fit on 8 GPUs of 5.0 GiB", "This fits:"],
    ),
    Mistake("verl's head", [f"{MODEL}.external_lib=null"], expects=["external_lib=None", "ditto.model.install"]),
    Mistake(
        "epochs that end early",
        ["trainer.total_epochs=3"],
        expects=["would end after 3 steps", "total_training_steps=200"],
    ),
    Mistake("too few samples", ["data.train_max_samples=2"], expects=["data.train_batch_size=4", "2 rows"]),
    Mistake(
        "a context the model lacks",
        [f"{ROLLOUT}.max_model_len=10000000"],
        expects=["positions", "max_model_len=10000000"],
    ),
]

# Even with the value that verl has as default: nobody would read it.
VERLS_SFT_KEYS = {
    "data.messages_key=messages": "messages",
    "data.tools_key=tools": "row_encoder.py",
    "data.train_max_samples=100": "TRAIN_FILES=",
    "data.truncation=error": "data.overlong",
    "data.max_length=4096": "data.max_prompt_length",
    "+data.custom_cls.path=mine.py": "row_encoder.py",
    "data.use_dynamic_bsz=false": "data.max_token_len_per_gpu",
    "data.micro_batch_size_per_gpu=2": "data.max_token_len_per_gpu",
    "trainer.default_hdfs_dir=hdfs://x": "trainer.default_local_dir",
    "trainer.balance_batch=false": "batches.py",
}
SFT_KEYS = [
    Mistake("a misspelt key", ["data.max_promt_length=5"], expects=["max_promt_length", "train_sft.py --cfg"]),
    Mistake("a misspelt key with a plus", ["+data.max_promt_length=5"], expects=["max_prompt_length"]),
    Mistake("a key of RL", ["data.mixture.seed=1"], expects=["data.mixture"]),
    *(
        Mistake(f"verl's {word}", [word], expects=[word.lstrip("+").partition("=")[0], instead])
        for word, instead in VERLS_SFT_KEYS.items()
    ),
    Mistake("a word without a value", ["trainer.save_freq"], expects=["trainer.save_freq"]),
    Mistake("a section that is a number", ["trainer=5"], expects=["trainer"]),
    Mistake("the optimizer as null", ["optim=null"], expects=["optim"]),
    Mistake("a bracket that is left open", ["data.train_files=[a.parquet"], expects=["data.train_files"]),
    Mistake("an unknown platform", ["platform=tpu"], expects=["tpu"]),
    Mistake("an unknown option", ["--dry-run"], expects=["--dry-run"]),
    Mistake("a key that is deleted", ["~optim.lr"], expects=["optim.lr"]),
    Mistake("a test without files", ["trainer.rl_test_freq=5"], expects=["rl_test_files"]),
    Mistake("an unknown test", ["trainer.rl_test_freq=5", "trainer.rl_test_files=nosuchset"], expects=["nosuchset"]),
    Mistake("a path without its mode", ["trainer.resume_from_path=x/global_step_3"], expects=["resume_from_path"]),
    Mistake("a mode without its path", ["trainer.resume_mode=resume_path"], expects=["resume_from_path"]),
    Mistake(
        "a checkpoint that is not there",
        ["trainer.resume_mode=resume_path", "trainer.resume_from_path=x/global_step_3"],
        expects=["global_step_3"],
    ),
]
SFT_FILES = [
    Mistake(name, [f"data.train_files='{{w}}/{file}'"], expects=expects)
    for name, file, expects in [
        ("no match", "nowhere/*.parquet", ["nowhere/*.parquet"]),
        ("a missing file", "none.parquet", ["none.parquet"]),
        ("a folder for a file", "empty", ["empty", "folder"]),
        ("an empty file", "zero_bytes.parquet", ["zero_bytes.parquet"]),
        ("a text for parquet", "text.parquet", ["text.parquet"]),
        ("a truncated file", "truncated.parquet", ["truncated.parquet"]),
        ("a file without rows", "no_talks.parquet", ["no rows", "data.train_files"]),
        ("a missing column", "text_column.parquet", ["text_column.parquet", "messages"]),
        ("a task file of RL", "good.parquet", ["good.parquet", "messages"]),
        ("messages that are a text", "messages_text.parquet", ["messages_text.parquet"]),
        ("messages without role", "messages_keys.parquet", ["messages_keys.parquet"]),
        ("an empty turn", "empty_turn.parquet", ["empty_turn.parquet", "row 0"]),
        ("an unknown role", "role.parquet", ["role.parquet", "row 0"]),
        ("a ratio that is a word", "talks.parquet:twice", ["twice"]),
        ("a ratio of 0", "talks.parquet:0", ["talks.parquet:0"]),
        ("a negative ratio", "talks.parquet:-1", ["talks.parquet:-1"]),
        ("a ratio of nan", "talks.parquet:nan", ["nan"]),
        ("a file named twice", "talks.parquet {w}/talks.parquet", ["talks.parquet", "twice"]),
    ]
] + [
    Mistake("a folder without shards", ["data.train_files=null", "data.dir={w}/empty"], expects=["empty", "DATA_DIR"]),
    Mistake("a folder that is not there", ["data.train_files=null", "data.dir={w}/gone"], expects=["gone", "DATA_DIR"]),
    Mistake("files as a number", ["data.train_files=5"], expects=["data.train_files"]),
    Mistake("a missing file to validate", ["data.val_files={w}/none.parquet"], expects=["none.parquet"]),
    Mistake(
        "all rows too long", ["data.max_prompt_length=2", "data.max_response_length=2"], expects=["max_prompt_length"]
    ),
    Mistake(
        "more positions than the model has",
        ["data.max_prompt_length=9000", "data.max_token_len_per_gpu=20000"],
        expects=["8,192"],
    ),
    Mistake("a cache below a file", ["data.cache_dir='{w}/a file/cache'"], expects=["a file", "data.cache_dir"]),
]
SFT_SECRETS = [
    Mistake("a key as a setting", [f"trainer.wandb_api_key={SECRET}"], expects=["environment"]),
    Mistake("a key with a plus", [f"+api_key={SECRET}"], expects=["environment"]),
    Mistake("a key in a list", [f"trainer.rl_test_arguments=[judge.api_key={SECRET}]"], expects=["environment"]),
]
SFT_COMMANDS = [
    Mistake("a source without a rule", ["data.default_train_role=null"], expects=["talks.parquet", "train_role"]),
    Mistake("a chat template that is not there", ["model.chat_template=gone.jinja"], expects=["gone.jinja", "qwen3"]),
    Mistake("a chat template of another family", ["model.chat_template=qwen3"], expects=["chat_template", "<think>"]),
    Mistake("a folder as a chat template", ["model.chat_template={w}/empty"], expects=["model.chat_template", "empty"]),
    Mistake(
        "a chat template that fails", ["model.chat_template={w}/bad.jinja"], expects=["fails", "model.chat_template"]
    ),
    Mistake("pictures beside the text", ["data.train_files={w}/pictures.parquet"], expects=["'images'", "text only"]),
    *SFT_KEYS,
    *SFT_FILES,
    *SFT_SECRETS,
    Mistake("a model whose weights are cut short", ["model.path={w}/models/cut"], expects=["model.path=", "truncated"]),
    Mistake(
        "a model that is not there", ["model.path=no/such_folder/here"], expects=["model.path=no/such_folder/here"]
    ),
    Mistake("a run folder below a file", ["run.dir='{w}/a file/run'"], expects=["run.dir={w}/a file/run", "is a file"]),
    Mistake("a module that is not there", ["model.external_lib=no.such.module"], expects=["model.external_lib"]),
    Mistake(
        "a callback that is not there",
        ["trainer.checkpoint_callback_class=no.such.Class"],
        expects=["trainer.checkpoint_callback_class=no.such.Class", "No module named"],
    ),
    Mistake(
        "an address of no store",
        ["trainer.upload_to=warehouse://x"],
        expects=["trainer.upload_to=warehouse://x", "fsspec"],
    ),
]
LAUNCHED = [
    Mistake("an unknown task", ["--task", "hitomm"], expects=["Did you mean 'hitom'"]),
    Mistake("an unknown part of a task", ["--task", "sim_arena_maths"], expects=["sim_arena_math"]),
    Mistake("no task", ["--task", ","], expects=["No task is named"]),
    Mistake("a platform", environment={"PLATFORM": "tpu"}, expects=["PLATFORM=tpu", "cpu"]),
    Mistake("threads", environment={"OMP_NUM_THREADS": "abc"}, expects=["OMP_NUM_THREADS=abc"]),
    Mistake("a dry run", environment={"DRY_RUN": "perhaps"}, expects=["DRY_RUN=perhaps", "1 or 0"]),
    Mistake("a reference in a name", environment={"EXPERIMENT_NAME": "a${b}"}, expects=["EXPERIMENT_NAME", "${"]),
    Mistake("a line break in a name", environment={"EXPERIMENT_NAME": "a\nb"}, expects=["EXPERIMENT_NAME"]),
    Mistake("a file as output", environment={"OUTPUT_DIR": "{w}/a file"}, expects=["OUTPUT_DIR={w}/a file"]),
    Mistake("an open quote", environment={"TRAIN_FILES": "'a.parquet"}, expects=["TRAIN_FILES", "quote"]),
    Mistake("files that are not there", environment={"TRAIN_FILES": "x.parquet"}, expects=["x.parquet"]),
    Mistake(
        "a key in the judge's address",
        environment={"OPENAI_BASE_URL": f"http://u:{SECRET}@127.0.0.1:9/v1"},
        expects=["OPENAI_BASE_URL"],
    ),
]
SFT_LAUNCHED = [
    *(
        Mistake(f"{variable}={value}", environment={variable: value}, expects=[f"{variable}={value}", "whole number"])
        for variable in ("N_GPUS", "NNODES", "SAVE_FREQ", "TEST_FREQ", "TOTAL_TRAINING_STEPS", "RL_TEST_FREQ")
        for value in ("abc", "1.5")
    ),
    Mistake("no GPU", environment={"N_GPUS": "0"}, expects=["trainer.n_gpus_per_node=0"]),
    Mistake("files that match nothing", environment={"TRAIN_FILES": "x/*.parquet"}, expects=["x/*.parquet"]),
]
