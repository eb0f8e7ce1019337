"""Every kind of mistake in a run's command ends as one paragraph, with exit code 2, before anything is started.

Each goes through the whole `main` of `train_ppo.py` or `train_sft.py`, in this process; the config without overrides is
composed once. Types and ranges of single keys are tested in tests/ditto/config_checks/test_keys.py, the rules in
test_rl_rules.py beside it.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import omegaconf.base
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from ditto import launch
from ditto.launching import compose
from ditto.launching.compose import load_config
from ditto.model.model_folder import BadModel, check_weights, load_chat
from sft import launch as sft_launch
from soul import tasks
from soul.cli.error_border import USER_ERROR
from soul.testing import FakeOpenAI, Json
from tests.mistakes import training_places
from tests.mistakes.mistake import SECRET, Mistake, assert_one_paragraph, run_as_process, run_in_process

ROOT = Path(__file__).resolve().parents[2]
ROLLOUT, MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
KEY = "sk-test-1234567890"
compose_config = compose.compose_config  # as it is; the tests below put a faster one in its place
parse = OverridesParser.create().parse_override

RL_GOOD = [
    *("platform=cpu", "algorithm.objective=ditto", "data.train_files=[{w}/good.parquet]"),
    *("data.val_files=[{w}/val.parquet]", "data.train_batch_size=4", "data.max_prompt_length=4096"),
    *("data.max_response_length=1024", "actor_rollout_ref.actor.ppo_mini_batch_size=2", f"{MODEL}.path={{w}}/model"),
    *("judge.base_url={judge}", "run.dir={w}/run", "+dry_run=true"),
]
SFT_GOOD = [
    *("platform=cpu", "data.dir={w}/empty", "data.train_files={w}/talks.parquet", "model.path={w}/model"),
    *("data.default_train_role=assistant", "run.dir={w}/run", "+dry_run=true", "data.max_prompt_length=200"),
    *("data.max_response_length=50", "data.train_batch_size=2"),
]


def rows(cases: dict[str, Sequence[str]]) -> list[Mistake]:
    """A mistake for each word, and what the user reads."""
    return [Mistake([word], expects) for word, expects in cases.items()]


RL_COMMANDS = [
    *rows(
        {
            "algorithm.objektive=ditto": ["algorithm.objektive", "algorithm.objective?", "--cfg"],
            "trainer.save_freq=-5": ["trainer.save_freq=-5: use whole number from -1"],
            "data.train_files=[a.parquet": ["data.train_files", "quotes"],
            "platform=tpu": ["tpu", "cpu", "gpu"],
            "actor_rollout_ref.actor.optim.lr=1e-6,1e-5": ["one value per key"],
            "run.dir=${oc.env:NO_SUCH_VARIABLE}": ["NO_SUCH_VARIABLE", "run.dir=${"],
            "tasks.coser.merged=true": ["coser", "merged"],
            "data.mixture.weights.hitomm=1": ["Did you mean 'hitom'"],
            "judge.base_url=http://127.0.0.1:9/v1": ["http://127.0.0.1:9/v1"],
            "judge.budget_usd=5": ["price_in"],
            f"{MODEL}.path=nobody/nothing": ["nobody/nothing", "ACTOR_MODEL_PATH"],
            f"{MODEL}.path={{w}}/models/cut": [f"{MODEL}.path", "truncated"],
            "run.dir='{w}/a file/run'": ["run.dir={w}/a file/run", "is a file"],
            "trainer.total_epochs=3": ["would end after 3 steps", "total_training_steps=200"],
            f"{ROLLOUT}.max_model_len=10000000": ["positions", "max_model_len=10000000"],
            "data.train_batch_size=8": ["data.train_batch_size=8", "4 rows"],
            "data.max_prompt_length=20": ["good.parquet, row 0", "max_prompt_length=20"],
            "data.val_files=[{w}/seen.parquet]": ["good.parquet", "--without-overlap"],
            "data.train_files=[{w}/none.parquet]": ["none.parquet", "does not exist", "data.train", "TRAIN_FILES"],
            "data.train_files=[{w}/truncated.parquet]": ["truncated.parquet", "not a readable parquet"],
            "data.train_files=[{w}/no_rows.parquet]": ["no_rows.parquet", "no rows"],
            "data.train_files=[{w}/talks.parquet]": ["talks.parquet", "data_source"],
            "data.train_files=[{w}/field.parquet]": ["field.parquet", "row 0, field question"],
            # Keys in settings
            f"+judge.api_key={SECRET}": ["api_key_env"],
            f"judge.jury=[{{api_key:{SECRET}": ["api_key_env"],
            f"judge.base_url=http://user:{SECRET}@127.0.0.1:9/v1": ["api_key_env"],
            SECRET: ["api_key_env"],
        }
    ),
    *(
        Mistake(["algorithm.objective=on_policy_distillation", f"algorithm.distill.teachers={{{teachers}}}"], expects)
        for teachers, expects in {
            "sotopia: '{w}/model'": ["no teacher", "tasks hitom", "default"],
            "default: '{w}/models/cut'": ["teachers.default", "should have"],
            "hitom: '{w}/other_words'": ["teachers.hitom", "tokenizer gives other ids", "sft.distill"],
        }.items()
    ),
    Mistake([], ["OPENAI_API_KEY"], {"OPENAI_API_KEY": ""}),
    Mistake(["--config-name", "nothere"], ["no file nothere.yaml"]),
    Mistake(["platform=gpu", "memory.gpu_gib=5"], ["does not fit on 8 GPUs of 5.0 GiB", "use larger GPUs"]),
]
SFT_COMMANDS = rows(
    {
        "data.train_files='{w}/nowhere/*.parquet'": ["nowhere/*.parquet"],
        "data.train_files='{w}/good.parquet'": ["good.parquet", "messages"],
        "data.train_files='{w}/role.parquet'": ["role.parquet", "row 0"],
        "data.train_files='{w}/talks.parquet:0'": ["talks.parquet:0"],
        "data.train_files='{w}/pictures.parquet'": ["'images'", "text only"],
        "data.max_promt_length=5": ["data.max_prompt_length?", "train_sft.py --cfg"],
        "data.messages_key=messages": ["data.messages_key is not read", "docs/sft_data.md"],
        "data.default_train_role=null": ["talks.parquet", "a column train_role"],
        "model.chat_template={w}/bad.jinja": ["fails", "model.chat_template"],
        "model.path={w}/models/cut": ["model.path=", "truncated"],
        f"trainer.rl_test_arguments=[judge.api_key={SECRET}]": ["environment"],
        "data.max_prompt_length=20000": ["8,192"],
    }
)
LAUNCHED = [
    Mistake(["--task", "hitomm"], ["Did you mean 'hitom'"]),
    Mistake([], ["PLATFORM=tpu", "cpu"], {"PLATFORM": "tpu"}),
    Mistake([], ["DRY_RUN=perhaps", "1 or 0"], {"DRY_RUN": "perhaps"}),
    Mistake([], ["EXPERIMENT_NAME", "${"], {"EXPERIMENT_NAME": "a${b}"}),
    Mistake([], ["OUTPUT_DIR={w}/a file"], {"OUTPUT_DIR": "{w}/a file"}),
    Mistake([], ["TRAIN_FILES", "quote"], {"TRAIN_FILES": "'a.parquet"}),
    Mistake(["--task", "hitom,coser"], ["no row of coser, only of hitom"], {"TRAIN_FILES": "'{w}/good.parquet'"}),
    Mistake([], ["OPENAI_BASE_URL"], {"OPENAI_BASE_URL": f"http://u:{SECRET}@127.0.0.1:9/v1"}),
]
SHORT = ("data.max_prompt_length=200", "data.max_response_length=50")
SFT_LAUNCHED = [
    Mistake([], ["N_GPUS=1.5", "whole number"], {"N_GPUS": "1.5"}),
    Mistake(
        ["data.max_prompt_length=200", "data.max_response_length=50"], ["x/*.parquet"], {"TRAIN_FILES": "x/*.parquet"}
    ),
]
CASES = [
    *((launch.main, mistake.after(*RL_GOOD, OPENAI_API_KEY=KEY)) for mistake in RL_COMMANDS),
    *((sft_launch.main, mistake.after(*SFT_GOOD)) for mistake in SFT_COMMANDS),
    *(
        (launch.main, mistake.after(f"{MODEL}.path={{w}}/model", "--task", "hitom", PLATFORM="cpu", OPENAI_API_KEY=KEY))
        for mistake in LAUNCHED
    ),
    *(
        (sft_launch.main, mistake.after(*SHORT, "model.path={w}/model", "--launcher", "sft", PLATFORM="cpu"))
        for mistake in SFT_LAUNCHED
    ),
]
MODELS: dict[str, list[str]] = {
    "models/no_weights": ["no file named model.safetensors"],
    "models/cut": ["truncated", "file not fully covered"],
    "models/lfs_pointer": ["header too large", "git lfs pull"],
    "models/lacks_shard": ["No such file", "model-00002-of-00002.safetensors"],
    "models/lacks_tensor": ["lack model.layers.1.mlp.up_proj.weight", "random"],
    "models/no_template": ["the tokenizer has no chat template"],
    "models/broken_config": ["config.json"],
    "models/unknown_type": ["qwen99"],
    "models/wider": ["has the shape", "config.json asks for"],
    "models/adapter": ["LoRA adapter", "Qwen/Qwen3-8B"],
    "no-model": ["neither an existing folder nor a model that the hub knows"],
    "a file": ["neither an existing folder nor a model that the hub knows"],
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with FakeOpenAI(Json({"ready": True})) as judge:
        folder = training_places.build(tmp_path_factory.mktemp("mistakes"))
        yield {"w": str(folder), "judge": judge.url}


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """OmegaConf parses each reference (`${...}`) whenever it is read, which is most of the time of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(omegaconf.base, "parse", cache(omegaconf.base.parse))
        patch.setattr(compose, "compose_config", quickly)
        yield


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for variable in ("TRAIN_FILES", "VAL_FILES", "DRY_RUN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    yield
    tasks.configure({})


@cache
def composed(directory: str, name: str) -> DictConfig:
    return compose_config(directory, name, ["platform=cpu"])


def quickly(directory: str, name: str, words: list[str]) -> DictConfig:
    """`compose_config`, without reading verl's files again where the words change no file."""
    overrides = [parse(word) for word in words if word != "platform=cpu"]
    if any(override.key_or_group == "platform" for override in overrides):
        return compose_config(directory, name, words)
    config = copy.deepcopy(composed(directory, name))
    ConfigLoaderImpl._apply_overrides_to_config(overrides, config)
    return config


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: str(CASES[number][1]))
def test_a_mistake_is_one_paragraph(
    number: int, places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main, mistake = CASES[number][0], CASES[number][1].at(places)
    assert_one_paragraph(run_in_process(main, mistake, monkeypatch, capsys), mistake)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_trained_is_refused(name: str, places: dict[str, str]) -> None:
    path = f"{places['w']}/{name}"
    with pytest.raises(BadModel) as refused:
        load_chat(path, False, "model.path")
        check_weights(path, False, "model.path")
    message = str(refused.value)
    assert message.startswith(f"model.path={path}: ") and len(message.splitlines()) == 1
    assert all(part in message for part in MODELS[name]), message


@pytest.mark.parametrize("name", ["a=b", 'it\'s "a"', "[a b,c]{a}", "~a$b", "mädchen-模型", "5"])
def test_any_name_reaches_the_config_as_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / name
    folder.mkdir()
    variables = {"EXPERIMENT_NAME": name, "OUTPUT_DIR": str(folder), "DATA_DIR": str(folder), "PLATFORM": "cpu"}
    for variable, value in {**variables, "ACTOR_MODEL_PATH": str(folder), "HF_HOME": "x"}.items():
        monkeypatch.setenv(variable, value)
    config = load_config(["--task", "hitom,fantom"])
    assert config.trainer.experiment_name == name and config.run.dir == f"{folder}/{name}"
    files = [f"{folder}/sim_rl_data/{task}_rl_train.parquet" for task in ("hitom", "fantom")]
    assert list(config.data.train_files) == files and config.actor_rollout_ref.model.path == str(folder)
    sft = sft_launch.config_of(["--launcher", "sft"])
    assert (sft.run.dir, sft.data.dir, sft.model.path) == (f"{folder}/{name}", str(folder), str(folder))
    monkeypatch.setenv("TRAIN_FILES", "'my rows.parquet' b=c.parquet")
    assert list(load_config(["--task", "hitom"]).data.train_files) == ["my rows.parquet", "b=c.parquet"]


def good_words(places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of a good dry run."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return list(Mistake(RL_GOOD, []).at(places).words)


@pytest.mark.parametrize(("objective", "sequences"), [("ditto", 96), ("ditto_no_feedback_loss", 64)])
def test_a_good_dry_run_prints_the_plan(
    objective: str,
    sequences: int,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [f"algorithm.objective={objective}", "trainer.total_training_steps=null", "trainer.total_epochs=7"]
    assert launch.main([*good_words(places, monkeypatch), *words]) == 0
    shown = capsys.readouterr().out
    of_a_step = ("32 sessions", "64 generations", f"{sequences} training sequences", "2 optimizer updates")
    for part in (objective, "4 train (hitom 4)", *of_a_step, "up to 32 calls", places["judge"]):
        assert part in shown, shown
    assert re.search(r"steps +7\n", shown), shown


def test_a_ray_cluster_that_does_not_answer_is_named(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray itself tries for minutes. (Nothing listens on port 1.)"""
    words = [word for word in good_words(places, monkeypatch) if word != "+dry_run=true"]
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert launch.main(words) == USER_ERROR
    shown = capsys.readouterr().err
    assert "BadCluster: " in shown and "there is no Ray cluster at " in shown and "RAY_ADDRESS=local" in shown


def test_the_launcher_passes_on_the_exit_code_and_leaves_nothing(tmp_path: Path) -> None:
    mistake = Mistake(["hitomm"], ["Did you mean 'hitom'"], {"OUTPUT_DIR": "out"})
    assert_one_paragraph(run_as_process(["bash", str(ROOT / "run_rl.sh")], mistake, tmp_path), mistake)
    assert not list(tmp_path.iterdir())
