"""`benchmarks.cluster` against cases that are computed by hand, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarks.cluster import (
    Inputs,
    colocate_async,
    computed_tokens,
    exchange_s,
    judge_work_s,
    limit,
    log_probs_s,
    main,
    measured_parts,
    sampling_work_s,
    separate_async,
    slowest_session_s,
    sync,
    update_s,
)
from soul.cli.error_border import USER_ERROR

# 8 sessions, 24 sequences of 100 tokens; a token costs 4 ms forward, and 4.16 ms to decode alone.
GIVEN = Inputs(
    prompts=4,
    group=2,
    updates=2,
    prompt_tokens=60,
    shared=0,
    response_tokens=40,
    longest_tokens=100,
    weights=1e9,
    update_passes=3,
    cache_bytes=1e6,
    cache_tokens=1000,
    budget=100,
    flops=1e12,
    flops_share=0.5,
    memory_rate=1e12,
    memory_share=0.5,
    node_rate=1e10,
    network_rate=1e9,
    network_share=0.5,
    judge_concurrency=4,
    sync_s=1,
    other_s=2,
)


def test_sampling_reads_weights_and_caches_for_every_token() -> None:
    four_at_once = 2 * 40 * (2e9 + 4 * 80e6) / 5e11
    assert sampling_work_s(GIVEN, 2) == pytest.approx(four_at_once + 4 * 2 * 60 * 0.004)
    twice_two_at_once = 2 * (2 * 40 * (2e9 + 2 * 80e6) / 5e11)  # a cache of two sequences
    assert sampling_work_s(replace(GIVEN, cache_tokens=200), 2) == pytest.approx(twice_two_at_once + 1.92)
    # Half a session on a GPU: decoding is as slow as for a whole one.
    assert sampling_work_s(GIVEN, 16) == pytest.approx(2 * 40 * 0.00416 + 0.5 * 2 * 60 * 0.004)


def test_what_more_gpus_do_not_shorten() -> None:
    assert judge_work_s(GIVEN) == pytest.approx(8 * 3 * 5 / 4)
    assert slowest_session_s(GIVEN) == pytest.approx(2 * 100 * 0.00416 + 3 * 5)


def test_a_sequence_is_not_divided_between_gpus() -> None:
    assert log_probs_s(GIVEN, 5) == pytest.approx(5 * 100 * 0.004)  # 24 sequences: the fullest has 5
    assert log_probs_s(GIVEN, 24) == log_probs_s(GIVEN, 100) == pytest.approx(0.4)
    assert update_s(GIVEN, 5) == pytest.approx(2 * 3 * 100 * 0.004 * 3)  # 12 an update: the fullest has 3


def test_what_the_prompts_of_a_group_share_is_computed_once_on_a_gpu() -> None:
    trees = replace(GIVEN, shared=0.5)  # groups of 2 sessions x 3 sequences, 30 tokens of a prompt shared
    assert computed_tokens(trees, 6) == 6 * (30 + 40) + 30
    assert computed_tokens(trees, 7) == 7 * (30 + 40) + 2 * 30
    assert computed_tokens(trees, 1) == 100
    assert log_probs_s(trees, 24) == pytest.approx(0.4)  # alone on its GPU, a sequence shares nothing
    assert log_probs_s(trees, 4) == pytest.approx((6 * 70 + 30) * 0.004)
    assert update_s(trees, 2) == pytest.approx(2 * (6 * 70 + 30) * 0.004 * 3)


def test_gathering_weights_counts_where_it_takes_longer_than_computing() -> None:
    assert exchange_s(GIVEN, 3, 5) == pytest.approx(3 * 4e9 * (4 / 5) / 5e9)  # three micro-batches, inside a node
    assert exchange_s(GIVEN, 2, 10) == pytest.approx(2 * 4e9 * (9 / 10) / 5e8)  # over the network
    assert update_s(GIVEN, 10) == pytest.approx(2 * 14.4)
    assert exchange_s(GIVEN, 1, 1) == 0


def test_a_step_is_the_sum_of_its_phases() -> None:
    step = sync(GIVEN, 2)
    assert (step.sampling, limit(GIVEN, 2)) == (pytest.approx(30), "judge")
    assert (step.log_probs, step.update) == (pytest.approx(12 * 0.4), pytest.approx(2 * 6 * 0.4 * 3))
    assert step.total == pytest.approx(30 + 4.8 + 14.4 + 1 + 2)


def test_the_asynchronous_modes_hide_the_slowest_session() -> None:
    quick = replace(GIVEN, judge_concurrency=400)
    assert limit(quick, 2) == "slowest session"
    assert colocate_async(quick, 2).sampling == pytest.approx(sampling_work_s(quick, 2))
    assert colocate_async(quick, 2).total < sync(quick, 2).total


def test_separate_devices_are_divided_in_the_best_way() -> None:
    assert separate_async(GIVEN, 8) is None
    quick = replace(GIVEN, judge_concurrency=4000, network_rate=1e12)
    step = separate_async(quick, 24)
    assert step is not None
    ours = max(step.sampling, step.log_probs + step.update) + 3
    assert step.total == pytest.approx(ours) and step.training_gpus in (8, 16)
    other = 24 - step.training_gpus
    slower = max(sampling_work_s(quick, 24 - other), log_probs_s(quick, other) + update_s(quick, other)) + 3
    assert step.total <= slower


def test_measured_parts_are_gpu_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = tmp_path / "metrics.jsonl"
    names = ("gen", "old_log_prob", "update_actor", "update_weights")
    lines = [{f"timing_s/{name}": seconds for name in names} for seconds in (10.0, 12.0, 20.0)]
    metrics.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"val/reward": 1.0}]))
    parts = measured_parts(metrics, 8)
    assert parts == {"gen_gpu_s": 96.0, "log_prob_gpu_s": 96.0, "update_gpu_s": 96.0, "sync_s": 12.0}
    measured = replace(GIVEN, **parts)
    assert sampling_work_s(measured, 16) == pytest.approx(6)
    assert log_probs_s(measured, 16) == pytest.approx(2 * 96 / 24)
    metrics.write_text(json.dumps({"timing_s/gen": 1.0}))
    assert main(["--metrics", str(metrics), "--metrics-gpus", "8"]) == USER_ERROR
    assert "no line has timing_s/old_log_prob" in capsys.readouterr().err


def test_every_input_is_an_option_and_is_printed_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gpus", "8", "512", "--judge-s", "7"]) in (0, None)
    printed = capsys.readouterr().out
    for each in fields(Inputs):
        assert f"--{each.name.replace('_', '-')}" in printed and each.metadata["source"], each.name
    assert "Simulated, not measured." in printed
    (given,) = [line for line in printed.splitlines() if "--judge-s " in line]
    assert "7" in given and "given" in given


def test_the_page_shows_what_the_simulation_says() -> None:
    given = replace(Inputs(), judge_concurrency=512)
    page = (Path(__file__).resolve().parents[1] / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line[:3] in ("| 8", "| 1", "| 3", "| 6")] == list(page_rows(given))


def page_rows(given: Inputs) -> Iterator[str]:
    for gpus in (8, 16, 32, 64):
        step, separated = sync(given, gpus), separate_async(given, gpus)
        phases = f"{step.sampling:.0f} | {limit(given, gpus)} | {step.log_probs:.0f} | {step.update:.0f}"
        apart = f"{separated.total:.0f}" if separated else ""
        yield f"| {gpus} | {phases} | {step.total:.0f} | {colocate_async(given, gpus).total:.0f} | {apart} |"
