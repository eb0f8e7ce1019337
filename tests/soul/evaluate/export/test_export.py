"""Exports: what was written is read back with the tools it was written for."""

import json
import os
import statistics
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from soul.errors import BadSettings
from soul.evaluate.export import ExportOptions, check, export
from soul.evaluate.export.__main__ import main
from soul.evaluate.export.scalars import scalars
from soul.evaluate.numbers.results import summarise
from soul.evaluate.tables.table import markdown
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import numbered, sample

REWARDS = [1.0, 0.0, 1.0, 1.0, None]
LM_EVAL = os.environ.get("LM_EVAL_PYTHON")  # an interpreter with lm-eval, which is no dependency of ours


@pytest.fixture
def run(tmp_path):
    lines = numbered(REWARDS) + numbered([0.25, 0.5], of="sotopia") + numbered([None], of="coser")
    lines[0].draft.critique = lines[5].draft.critique = "half of a pair: \ud83d"
    lines[5].draft.seats = {"policy": [{"role": "assistant", "content": "half of a pair: \ud83d"}]}
    return finished_run(tmp_path / "run-1", lines)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def lm_eval_files(run):
    (place,) = export(run, summarise(run.samples, run.sets), ["lm-eval"])
    return Path(place), read(Path(place))


def test_scalars_are_the_tables_numbers_and_know_what_is_missing(run):
    found = scalars(summarise(run.samples, run.sets))
    assert found["hitom/score"] == pytest.approx(75.0) and found["hitom/invalid"] == 1
    assert found["hitom/score_low"] <= 75.0 <= found["hitom/score_high"]
    assert (found["hitom/score_bound_low"], found["hitom/score_bound_high"]) == pytest.approx((60.0, 80.0))
    assert found["hitom/invalid_share"] == pytest.approx(0.2)
    assert "coser/score" not in found and found["coser/invalid_share"] == 1.0
    assert found["average/macro"] == pytest.approx((75.0 + 37.5) / 2) and found["average/macro_sets"] == 2
    assert found["hitom/cost_usd"] == pytest.approx(5 * 0.75)
    assert all(isinstance(value, float) for value in found.values())


def test_lm_eval_results_have_its_keys_and_our_numbers(run):
    path, found = lm_eval_files(run)
    hitom = found["results"]["hitom"]
    valid = [reward for reward in REWARDS if reward is not None]
    assert hitom["accuracy,none"] == 0.75
    assert hitom["accuracy_stderr,none"] == pytest.approx(statistics.stdev(valid) / 2)
    assert (hitom["invalid,none"], hitom["worst_case,none"], hitom["best_case,none"]) == pytest.approx((0.2, 0.6, 0.8))
    assert found["n-samples"]["hitom"] == {"original": 5, "effective": 4}
    assert found["soul"]["sets"]["hitom"]["causes"] == {"timeout": 1}
    assert not [key for key in found["results"]["coser"] if key.startswith("overall")]
    assert found["results"]["coser"]["invalid,none"] == 1.0 and found["n-samples"]["coser"]["effective"] == 0
    assert found["groups"]["soul"]["macro_average,none"] == pytest.approx((0.75 + 0.375) / 2)
    assert "2 of 3 sets" in found["groups"]["soul"]["alias"]
    assert found["higher_is_better"]["hitom"]["accuracy"] is True
    assert found["config"]["limit"] == 100 and found["model_name"] == "under-test"
    for key in ("configs", "versions", "n-shot", "group_subtasks", "git_hash", "date", "task_hashes"):
        assert key in found
    assert path.parent.name == "under-test" and path.name.startswith("results_")


def test_lm_eval_samples_keep_every_row_failed_ones_too(run):
    path, _ = lm_eval_files(run)
    (file,) = path.parent.glob("samples_hitom_*.jsonl")
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["accuracy"] for line in lines] == REWARDS
    assert [line["failures"] for line in lines] == [[None]] * 4 + [["timeout"]]
    assert lines[0]["resps"] == [["..."]] and lines[0]["doc_id"] == 0 and lines[0]["doc"] == run.samples[0].record


def test_a_rows_samples_are_its_repeats(tmp_path):
    lines = [sample(reward, 0, k) for k, reward in enumerate([1.0, 0.0, None])]
    _, found = lm_eval_files(finished_run(tmp_path / "run-1", lines, n=3))
    assert found["n-samples"]["hitom"] == {"original": 1, "effective": 1}
    assert found["results"]["hitom"]["accuracy,none"] == 0.5
    assert found["results"]["hitom"]["accuracy_stderr,none"] == "N/A"
    assert found["configs"]["hitom"]["repeats"] == 3


def test_the_same_run_is_exported_to_the_same_files(run):
    path, first = lm_eval_files(run)
    assert lm_eval_files(run) == (path, first) and len(list(path.parent.iterdir())) == 4


LM_EVAL_READS = """
import json, sys
from pathlib import Path
import datasets
from lm_eval.utils import get_file_task_name, get_latest_filename, get_results_filenames, make_table
from lm_eval.utils import get_sample_results_filenames
files = [str(path) for path in Path(sys.argv[1]).rglob("*") if path.is_file()]
results = json.loads(Path(get_latest_filename(get_results_filenames(files))).read_text())
print(make_table(results)); print(make_table(results, "groups"))
for file in get_sample_results_filenames(files):
    rows = datasets.load_dataset("json", data_files=file, split="train", cache_dir=sys.argv[2])
    print("samples", get_file_task_name(Path(file).name), len(rows))
"""


@pytest.mark.skipif(not LM_EVAL, reason="LM_EVAL_PYTHON names no interpreter with lm-eval")
def test_lm_eval_itself_reads_the_files(run, tmp_path):
    path, _ = lm_eval_files(run)
    command = [LM_EVAL, "-c", LM_EVAL_READS, str(path.parent), str(tmp_path / "cache")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "0.750" in done.stdout and "macro_average" in done.stdout and "worst_case" in done.stdout
    for name, rows in (("hitom", 5), ("sotopia", 2), ("coser", 1)):
        assert f"samples {name} {rows}" in done.stdout


def test_tensorboard_reads_what_was_written_at_each_step(run):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    results = summarise(run.samples, run.sets)
    for step in (50, 100):
        (place,) = export(run, results, ["tensorboard"], ExportOptions(step=step))
    read_back = accumulator.EventAccumulator(place)
    read_back.Reload()
    series = read_back.Tensors("soul/hitom/score")
    assert [(one.step, one.tensor_proto.float_val[0]) for one in series] == [(50, 75.0), (100, 75.0)]
    written = {tag for tag in read_back.Tags()["tensors"]}
    assert written == {f"soul/{name}" for name in scalars(results)} | {"soul/table"}
    assert read_back.Tensors("soul/table")[0].tensor_proto.string_val[0].decode() == markdown(results)


def test_tensorboard_is_written_without_torch_or_tensorflow(run):
    pytest.importorskip("tensorboard")
    code = (
        "import sys; from soul.evaluate.export.__main__ import main; assert main(sys.argv[1:]) == 0;"
        "assert not {'torch', 'tensorflow', 'wandb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(run.folder), "--to", "tensorboard"], check=True, timeout=120)


def wandb_records(file):
    """The client's messages in its offline file: a header, then LevelDB's log format in blocks of 32 KiB. (The
    client has no reader of it in Python any more.)"""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(parts)
            parts = b""


@pytest.mark.slow  # wandb's own processes
def test_wandb_offline_run_holds_numbers_tables_and_settings(run, tmp_path):
    """In a process of its own, as the client leaves threads and a service behind; read with the client's own reader."""
    pytest.importorskip("wandb")
    folder = tmp_path / "logs"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    environment |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    folder.mkdir()
    words = [str(run.folder), "--to", "wandb", "--out", str(folder), "--step", "50", "--samples", "3"]
    command = [sys.executable, "-m", "soul.evaluate.export", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (file,) = folder.rglob("*.wandb")
    assert str(file.parent) in done.stdout
    history, config = {}, {}
    for record in wandb_records(file):
        for item in record.history.item:
            history["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
    assert history["soul/hitom/score"] == 75.0 and history["soul/average/macro"] == pytest.approx(56.25)
    assert (history["soul/checkpoint_step"], history["soul/samples_logged"], history["soul/samples"]) == (50, 3, 8)
    assert config["policy"]["model"] == "under-test" and config["limit"] == 100
    (samples,) = folder.rglob("sample_table*.table.json")
    table = read(samples)
    assert [row[0] for row in table["data"]] == ["hitom", "sotopia", "coser"]
    assert table["data"][2][table["columns"].index("failure")] == "judge: timeout"
    assert table["data"][2][table["columns"].index("reward")] is None


def test_what_cannot_be_exported_to_is_said_before_anything_else(run, capsys, monkeypatch):
    assert check("lm-eval, lm-eval") == ["lm-eval"]
    with pytest.raises(BadSettings, match="no such target.*lm-eval, tensorboard, wandb"):
        check("lm-eval,mlflow")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadSettings, match="pip install tensorboard"):
        check("tensorboard")
    assert main([str(run.folder), "--to", "wandb"]) == 2 and "pip install wandb" in capsys.readouterr().err
    assert main([str(run.folder.parent), "--to", "lm-eval"]) == 2


def test_a_real_run_of_several_sets_can_be_exported(tmp_path):
    from tests.soul.evaluate.finished_run import real_run

    run = real_run(tmp_path)
    path, found = lm_eval_files(run)
    assert set(found["results"]) == {"hitom", "sotopia", "coser"}
    lines = [json.loads(line) for file in path.parent.glob("samples_*") for line in file.open(encoding="utf-8")]
    assert len(lines) == len(run.samples)
    one_turn = [line for line in lines if "accuracy" in line]
    assert all(line["resps"] == [["<answer>B</answer>"]] for line in one_turn)
    assert all(
        json.loads(line["arguments"]["gen_args_0"]["arg_0"])[0]["role"] in ("system", "user") for line in one_turn
    )
