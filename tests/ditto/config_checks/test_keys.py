"""No key is accepted and ignored: what is read is in a table with its type, and everything else is refused."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from ditto.config_checks.key_types import covering, describe, leaves, takes
from ditto.config_checks.keys import RL_KEYS
from ditto.launching.compose import default_config, load_config, package_dir
from ditto.settings import BadConfig
from sft.config_checks import SFT_KEYS
from sft.launch import config_of

ROOT = Path(__file__).resolve().parents[3]
ROLLOUT = "actor_rollout_ref.rollout"
# Keys that verl's dataclasses and code know and its config files do not hold.
NOT_IN_THE_FILES = re.compile(
    r"actor_rollout_ref\.(\w+\.fsdp_config\.(mixed_precision|wrap_policy\.transformer)|rollout\.(enable_sleep"
    r"|engine_kwargs)|model\.(lora\.fully|override_config\.att)).*|trainer\.resume_from_path|dry_run|ray_kwargs.*"
)


def test_every_key_is_in_the_config_and_every_number_of_it_has_a_range() -> None:
    found = {
        covering(key, RL_KEYS)
        for platform in ("gpu", "cpu")
        for key, _ in leaves(OmegaConf.to_container(default_config(platform)))
    }
    assert [key for key in RL_KEYS if key not in found and not NOT_IN_THE_FILES.fullmatch(key)] == []
    unbounded = [key for key, entry in RL_KEYS.items() if describe(entry.type) == "whole number"]
    assert [key for key in unbounded if not key.endswith(".seed")] == []


def test_each_key_that_verl_is_said_to_read_is_read_by_the_code_that_runs() -> None:
    """The code of verl's V1 trainer on FSDP2 and vLLM; where a config class merely declares a key, nothing reads it."""
    root = package_dir("verl")
    patterns = [
        *("trainer/main_ppo.py", "trainer/ppo/v1/*.py", "trainer/ppo/core_algos.py", "trainer/ppo/utils.py"),
        *("trainer/ppo/rollout_corr_helper.py", "workers/engine_workers.py", "workers/engine/fsdp/*.py"),
        *("workers/utils/losses.py", "utils/fsdp_utils.py", "utils/checkpoint/checkpoint_manager.py"),
        *("utils/checkpoint/fsdp_checkpoint_manager.py", "workers/rollout/*.py", "workers/rollout/vllm_rollout/*.py"),
        *("experimental/agent_loop/agent_loop.py", "workers/config/optimizer.py", "workers/config/model.py"),
    ]
    files = [path for pattern in patterns for path in root.glob(pattern)] + list((ROOT / "verl/ditto").rglob("*.py"))
    files = [file for file in files if file.name not in ("keys.py", "key_types.py")]
    code = "\n".join(
        line for path in files for line in path.read_text().splitlines() if not re.match(r"    \w+: .* = ", line)
    )
    read = set(re.findall(r"(?:\.|\")(\w+)\b", code))
    handed_on = set(  # by interpolation, to a key that is read
        re.findall(r"actor_rollout_ref\.actor\.(\w+)", (root / "trainer/config/actor/dp_actor.yaml").read_text())
    )
    silent = [key for key in RL_KEYS if key.rpartition(".")[2] not in read | handed_on]
    assert [key for key in silent if key.startswith(("actor_rollout_ref.", "data.", "algorithm.", "trainer."))] == []


@pytest.mark.parametrize(
    "word, said",
    [
        ("rollout.n=4", f"Did you mean {ROLLOUT}.n?"),
        ("++judge.modell=gpt", "Did you mean judge.model?"),
        ("data.gen_batch_size=5", "Use data.train_batch_size."),
        ("critic.optim.lr=1e-5", "there is no critic"),
        ("reward.num_workers=3", "docs/add_a_task.md"),
        ("actor_rollout_ref={rollout: {do_sample: true}}", f"{ROLLOUT}.do_sample is not read"),
        (
            "data={seed: 3, tokenizer: x}",
            "data.tokenizer is not read by this trainer.",
        ),
        ("trainer=5", "trainer is a section. Set its keys one by one: trainer."),
        ("~actor_rollout_ref.rollout.n", "a key cannot be removed"),
        ("+data.train_batch_size.x=5", "Did you mean data.train_batch_size?"),
        ("data.train_files[0]=a", "cannot be parsed"),
        ("+gateway.x=1", "judge, feedback"),
    ],
)
def test_an_override_that_nothing_reads_is_refused(word: str, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        load_config([word])
    assert said in str(refused.value) and "use +" not in str(refused.value)


def test_a_users_config_file_is_checked_as_a_command_line_is(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("defaults: [run_rl, _self_]\nactor_rollout_ref: {rollout: {do_sample: true}}\n")
    (tmp_path / "mine.yaml").write_text("defaults: [base, _self_]\nalgorithm: {objective: ditto}\n")
    words = ["--config-dir", str(tmp_path), "--config-name", "mine", "platform=cpu"]
    with pytest.raises(BadConfig, match=f"{ROLLOUT}.do_sample is not read by this trainer"):
        load_config(words)
    (tmp_path / "base.yaml").write_text("defaults: [run_rl, _self_]\ntrainer: {save_freq: 7}\n")
    config = load_config(words)
    assert (config.algorithm.objective, config.trainer.save_freq) == ("ditto", 7)


@pytest.mark.parametrize(
    "keys, key, good, bad",
    [
        (
            RL_KEYS,
            "actor_rollout_ref.actor.optim.lr",
            [1e-6, 1],
            [0, -1e-6, float("nan"), "a", 1e9, None, True],
        ),
        (RL_KEYS, "actor_rollout_ref.actor.optim.betas", [[0.9, 0.95]], [[2.0, 1.0], [0.9], 0.9, ["a", "b"], None]),
        (RL_KEYS, "data.train_batch_size", [1, 64], [0, -4, 3.5, "abc", None, True, [4], 1e9]),
        (RL_KEYS, "data.max_prompt_length", [None, 20], [0, -1, 10**12, "abc", 1.5]),
        (RL_KEYS, "data.train_max_samples", [-1, 1], [0, -5, "abc", 1.5]),
        (RL_KEYS, "data.train_files", ["a", ["a", "b"]], [5, {"a": 1}, [5]]),
        (RL_KEYS, "trainer.save_freq", [-1, 0, 5], ["abc", 1.5, None, -5]),
        (RL_KEYS, "trainer.logger", ["console", ["console", "wandb"]], ["nosuchlogger", ["nosuchlogger"], 5]),
        (RL_KEYS, "trainer.experiment_name", ["a"], [None, ["a", "b"], 7, ""]),
        (RL_KEYS, f"{ROLLOUT}.temperature", [0.5], [-1, 0, float("nan"), "abc"]),
        (RL_KEYS, f"{ROLLOUT}.top_p", [1, 0.1], [0, 2, "abc"]),
        (RL_KEYS, "run.dir", ["x"], [None, "", " ", 5, ["a"]]),
        (RL_KEYS, "run.phase_timeout_s", [1], [0, -1, float("inf"), "1"]),
        (RL_KEYS, "run.max_unchanged_syncs", [None, 1], [0, 1.5]),
        (RL_KEYS, "judge.timeout_s", [None, 3], [0, float("nan"), "abc"]),
        (RL_KEYS, "judge.cache", [None, True], ["perhaps"]),
        (RL_KEYS, "algorithm.old_logp", ["auto"], ["guess"]),
        (RL_KEYS, "trainer.v1.trainer_mode", ["ditto_sync"], ["sync"]),
        (SFT_KEYS, "trainer.save_freq", ["after_each_epoch", 3], ["after", -5]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_takes_the_values_of_its_type_and_range(keys: Any, key: str, good: list[Any], bad: list[Any]) -> None:
    kind = keys[key].type
    assert [value for value in good if not takes(kind, value)] == [value for value in bad if takes(kind, value)] == []


def test_the_documents_show_only_keys_that_are_read_and_by_their_full_paths() -> None:
    sections = "actor_rollout_ref|algorithm|data|run|trainer|refine|judge|memory|optim|model|checkpoint"
    pattern = re.compile(rf"(?<![\w./])\+*((?:{sections})(?:\.\w+)+)=")
    listed = ("configuration.md", "upgrading.md")  # the latter names the keys of before
    files = [ROOT / "README.md", *(file for file in (ROOT / "docs").rglob("*.md") if file.name not in listed)]
    named = {(file.name, key) for file in files for key in pattern.findall(file.read_text(encoding="utf-8"))}
    assert len(named) > 60
    assert sorted((file, key) for file, key in named if not (covering(key, RL_KEYS) or covering(key, SFT_KEYS))) == []


def test_the_page_of_the_configuration_is_the_one_that_the_code_makes() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "config_page.py"))["page"]()
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == written, "run: python docs/config_page.py"


def test_the_config_files_set_only_keys_that_are_read_and_no_table_has_a_key_that_is_gone() -> None:
    files = [*(ROOT / "verl/ditto/config").glob("*.yaml"), *(ROOT / "verl/ditto/config/platform").glob("*.yaml")]
    shipped = {
        key
        for file in files
        if file.name != "fixed.yaml"
        for key, _ in leaves(yaml.safe_load(file.read_text(encoding="utf-8")))
        if key != "defaults"
    }
    fixed = {"actor_rollout_ref.rollout.checkpoint_engine.backend"}  # it follows the mode
    assert {key for key in shipped if not covering(key, RL_KEYS)} == fixed
    given = dict(leaves(OmegaConf.to_container(config_of(["platform=gpu"]))))
    sections = ("data.", "trainer.", "checkpoint.", "run.", "memory.")  # the others are verl's
    assert [key for key in given if key.startswith(sections) and not covering(key, SFT_KEYS)] == [
        *("checkpoint._target_", "checkpoint.save_contents", "checkpoint.load_contents")
    ]
    assert [key for key in SFT_KEYS if key.startswith(sections) and key not in given] == []
