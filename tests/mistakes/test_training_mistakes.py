"""Every mistake in a training's command ends as one paragraph, with exit code 2, before anything is started.

The rows are in `training_table.py`. Each goes through the whole `main` of `train_ppo.py` or `train_sft.py`, in this
process; the config without overrides is composed once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
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
from ditto.launching.override_parser import quoted
from ditto.model.tokenizer_check import load_tokenizer
from ditto.model.weights_check import BadModel, check_weights
from sft import launch as sft_launch
from soul import tasks
from soul.files.writable import NotWritable, check_writable
from soul.testing import FakeOpenAI, Json
from tests.mistakes import training_places
from tests.mistakes.mistake import AssertStops, Mistake, assert_one_paragraph, run_as_process
from tests.mistakes.training_table import LAUNCHED, MODEL, MODELS, RL_COMMANDS, SFT_COMMANDS, SFT_LAUNCHED

ROOT = Path(__file__).resolve().parents[2]
compose_config = compose.compose_config  # as it is; the tests below put a faster one in its place
parse = OverridesParser.create().parse_override


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
        yield


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("OPENAI_BASE_URL", "JUDGE_MODEL_NAME", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR", "DRY_RUN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1234567890")
    yield
    tasks.configure({})


RL_GOOD = [
    *("platform=cpu", "algorithm.objective=ditto", "data.train_files=[{w}/good.parquet]"),
    *("data.val_files=[{w}/val.parquet]", "data.train_batch_size=4", "data.max_prompt_length=4096"),
    *("data.max_response_length=1024", "actor_rollout_ref.actor.ppo_mini_batch_size=2", f"{MODEL}.path={{w}}/model"),
    *("judge.base_url={judge}", "run.dir={w}/run", "+dry_run=true"),
]
SFT_GOOD = [
    *("platform=cpu", "data.dir={w}/empty", "data.train_files={w}/talks.parquet", "model.path={w}/model"),
    *(
        "data.default_train_role=assistant",
        "run.dir={w}/run",
        "+dry_run=true",
        "data.max_prompt_length=200",
        "data.max_response_length=50",
    ),
    "data.train_batch_size=2",
]


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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "compose_config", quickly)


# ---- command lines


@pytest.mark.parametrize("mistake", RL_COMMANDS, ids=str)
def test_a_mistake_of_rl_is_one_paragraph(
    mistake: Mistake,
    quick: None,
    assert_stops: AssertStops,
) -> None:
    environment = {"OPENAI_API_KEY": "sk-test-1234567890", **mistake.environment}
    whole = Mistake(mistake.name, [*RL_GOOD, *mistake.words], environment, mistake.expects)
    assert_stops(launch.main, whole)


@pytest.mark.parametrize("mistake", SFT_COMMANDS, ids=str)
def test_a_mistake_of_supervised_training_is_one_paragraph(
    mistake: Mistake,
    quick: None,
    assert_stops: AssertStops,
) -> None:
    whole = Mistake(mistake.name, [*SFT_GOOD, *mistake.words], mistake.environment, mistake.expects)
    assert_stops(sft_launch.main, whole)


# ---- models and folders


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_trained_is_refused(name: str, places: dict[str, str]) -> None:
    path = f"{places['w']}/{name}"
    with pytest.raises(BadModel) as refused:
        load_tokenizer(path, False, "model.path")
        check_weights(path, False, "model.path")
    message = str(refused.value)
    assert message.startswith(f"model.path={path}: ") and len(message.splitlines()) == 1
    assert all(part in message for part in MODELS[name]), message


def test_a_good_model_is_accepted(places: dict[str, str], tmp_path: Path) -> None:
    load_tokenizer(f"{places['w']}/model", False, "model.path")
    check_weights(f"{places['w']}/model", False, "model.path")
    check_weights(f"{places['w']}/sharded", False, "model.path")
    check_weights("Qwen/Qwen3-8B", False, "model.path")  # a hub id is left to the download


def test_a_folder_that_cannot_be_written_is_refused(places: dict[str, str], tmp_path: Path) -> None:
    for folder in (f"{places['w']}/a file/run", "/proc/soul/run", f"{places['w']}/{'x' * 300}"):
        with pytest.raises(NotWritable, match="run.dir=.*: cannot write there"):
            check_writable(folder, "run.dir")
    check_writable(tmp_path / "a" / "b", "run.dir")
    assert not list(tmp_path.iterdir())


# ---- the launchers

NAMES = ["a=b", "it's", 'say "a"', "a b,c", "[a]", "{a}", "a$b", "mädchen-模型", "a\\'b", "~a", "5"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_reaches_the_config_as_it_is(
    name: str, places: dict[str, str], quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    variables = {"EXPERIMENT_NAME": name, "OUTPUT_DIR": str(folder), "DATA_DIR": str(folder), "PLATFORM": "cpu"}
    variables |= {"ACTOR_MODEL_PATH": str(folder), "HF_HOME": "x"}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    config = load_config(["--task", "hitom,fantom"])
    assert config.trainer.experiment_name == name and config.run.dir == f"{folder}/{name}"
    assert list(config.data.train_files) == [
        f"{folder}/sim_rl_data/{task}_rl_train.parquet" for task in ("hitom", "fantom")
    ]
    assert config.actor_rollout_ref.model.path == str(folder)
    sft = sft_launch.config_of(["--launcher", "sft"])
    assert (sft.run.dir, sft.data.dir, sft.model.path) == (f"{folder}/{name}", str(folder), str(folder))


def test_files_with_blanks_stand_in_quotes(
    places: dict[str, str], quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLATFORM", "cpu")
    monkeypatch.setenv("TRAIN_FILES", "'my rows.parquet' b=c.parquet")
    assert list(load_config(["--task", "hitom"]).data.train_files) == ["my rows.parquet", "b=c.parquet"]
    assert list(sft_launch.config_of(["--launcher", "sft"]).data.train_files) == ["my rows.parquet", "b=c.parquet"]


@pytest.mark.parametrize("mistake", [*LAUNCHED, *SFT_LAUNCHED], ids=str)
def test_a_wrong_variable_of_a_launcher_is_one_paragraph(
    mistake: Mistake,
    quick: None,
    tmp_path: Path,
    assert_stops: AssertStops,
) -> None:
    sft = mistake in SFT_LAUNCHED
    usual = {"PLATFORM": "cpu", "OUTPUT_DIR": str(tmp_path), "OPENAI_API_KEY": "sk-1234567"}
    words = [
        *(["--launcher", "sft"] if sft else ["--task", "hitom"]),
        *mistake.words,
        f"{'' if sft else MODEL + '.'}{'model.' if sft else ''}path={{w}}/model",
    ]
    whole = Mistake(mistake.name, words, {**usual, **mistake.environment}, mistake.expects)
    if sft:
        words += ["data.max_prompt_length=200", "data.max_response_length=50"]
    main = sft_launch.main if sft else launch.main
    assert_stops(main, whole)


@pytest.mark.parametrize("launcher", ["run_rl.sh", "recipe/ditto/run_rl.sh", "run_sft.sh"])
def test_a_launcher_explains_itself(launcher: str) -> None:
    ended = run_as_process(["bash", str(ROOT / launcher)], Mistake("help", ["--help"]))
    assert ended.code == 0 and launcher in ended.out and not ended.err


def test_the_launcher_passes_on_the_exit_code_and_leaves_nothing(tmp_path: Path) -> None:
    mistake = Mistake("an unknown task", ["hitomm"], {"OUTPUT_DIR": "out"}, ["Did you mean 'hitom'"])
    ended = run_as_process(["bash", str(ROOT / "run_rl.sh")], mistake, folder=tmp_path)
    assert_one_paragraph(ended, mistake)
    assert not list(tmp_path.iterdir())


def test_a_quoted_text_is_one_value() -> None:
    assert parse(quoted("k", ["a,b", "c'd"], "V")).value() == ["a,b", "c'd"]
