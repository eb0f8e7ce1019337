"""Ranks and workers share a step without gaps or doubles, and a run goes on from its step alone."""

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.dataset_utils import SFTTensorCollator

from sft.corpus.batches import StepBatches, ValidationBatches
from sft.corpus.split import Corpus
from tests.sft.corpus.corpora import opened, row, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups of files; 50 and 30 rows, of two sources in the second."""
    folder = tmp_path_factory.mktemp("corpus")
    write(folder / "a.parquet", [row(number, turns=2 + 2 * (number % 5)) for number in range(50)])
    write(folder / "b.parquet", [row(number + 50, "xy"[number % 2], turns=2 + number % 9) for number in range(30)])
    return folder


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Corpus:
    """50 sequences once and 30 twice: 110 an epoch."""
    return opened(folder, train_files=f"{folder}/a.parquet {folder}/b.parquet:2")


@given(st.sampled_from([1, 2, 4, 8]), st.integers(0, 40), st.integers(0, 6))
def test_ranks_share_every_step(corpus: Corpus, ranks: int, first: int, steps: int) -> None:
    size = 16
    plans = [list(StepBatches(corpus, size, rank, ranks, first, first + steps)) for rank in range(ranks)]
    assert [len(plan) for plan in plans] == [steps] * ranks
    for number in range(steps):
        shares = [plan[number] for plan in plans]
        assert [len(share) for share in shares] == [size // ranks] * ranks
        taken = Counter(sequence for share in shares for sequence in share)
        assert taken == Counter(corpus.order.step(first + number, size).tolist())


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_step_counts_rows_and_has_all_their_sequences(folder: Path, ranks: int) -> None:
    """With a template that makes several sequences of a row, in two files of which one counts twice."""
    corpus = opened(folder, template="strips_thinking", train_files=f"{folder}/a.parquet {folder}/b.parquet:2")
    store = corpus.dataset
    assert len(corpus.order) == 110 and store.rows == 80 and len(store) > 200
    every = np.arange(store.rows)
    assert store.row_sequences(every).tolist() == list(range(len(store)))
    rows_of = np.repeat(every, [len(store.row_sequences(every[one : one + 1])) for one in every])
    by_row = list(zip(store.column("row").tolist(), store.column("source").tolist(), strict=True))
    for one in (0, 17, 49, 50, 79):  # all sequences of a row, and no other's
        mine = store.row_sequences(np.array([one]))
        assert {by_row[n] for n in mine} == {by_row[mine[0]]} and (rows_of == one).sum() == len(mine)
    for step in range(3):
        shares = [list(StepBatches(corpus, 8, rank, ranks, step, step + 1))[0] for rank in range(ranks)]
        assert len({len(share) for share in shares}) == 1
        taken = Counter(sequence for share in shares for sequence in share if sequence >= 0)
        assert taken == Counter(store.row_sequences(corpus.order.step(step, 8)).tolist())


def test_workers_change_nothing(corpus: Corpus) -> None:
    """What a process reads is the same with workers or without, started in the middle or not, whatever it had open."""

    def read(workers: int, first: int) -> list[list[tuple[list[int], list[int], str]]]:
        loader = DataLoader(
            corpus.dataset,
            batch_sampler=StepBatches(corpus, 8, 1, 2, first, 20),
            num_workers=workers,
            collate_fn=list,  # verl joins what is compared here
            multiprocessing_context="fork" if workers else None,
        )
        return [
            [(each["input_ids"].tolist(), each["loss_mask"].tolist(), each["source"]) for each in batch]
            for batch in loader
        ]

    whole = read(0, 0)
    assert len(whole) == 20
    assert read(0, 13) == whole[13:]
    assert read(2, 13) == whole[13:]


def test_batches_are_what_verls_trainer_takes(corpus: Corpus) -> None:
    (numbers,) = StepBatches(corpus, 8, 0, 2, 3, 4)
    items = [corpus.dataset[number] for number in numbers]
    for item in items:
        assert {key: item[key].dtype for key in ("input_ids", "position_ids", "loss_mask")} == dict.fromkeys(
            ("input_ids", "position_ids", "loss_mask"), torch.int64
        )
        assert item["position_ids"].tolist() == list(range(len(item["input_ids"])))
        # verl's loss rolls the mask of the whole batch by one: a first token that were trained would be another's label
        assert item["loss_mask"][0] == 0 and item["loss_mask"].sum() > 0
    batch = tu.get_tensordict(SFTTensorCollator("no_padding")(items), {"pad_mode": "no_padding"})
    assert batch["input_ids"].offsets().diff().tolist() == [len(item["input_ids"]) for item in items]
    assert list(batch["source"]) == [item["source"] for item in items]


def test_a_dataset_travels_to_another_process(corpus: Corpus) -> None:
    here = corpus.dataset[0]["input_ids"].tolist()
    content = pickle.dumps(corpus.dataset)
    assert len(content) < 5000
    there = pickle.loads(content)  # noqa: S301 (written a line above)
    assert there[0]["input_ids"].tolist() == here


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [4, 7, 64])
def test_validation_reads_every_sequence_once(folder: Path, ranks: int, size: int) -> None:
    corpus = opened(folder, "val", val_files=f"{folder}/*.parquet")
    plans = [ValidationBatches(corpus, size, rank, ranks) for rank in range(ranks)]
    assert plans[0].sources == plans[-1].sources
    batches = [list(plan) for plan in plans]
    taken: Counter[int] = Counter()
    for number, source in enumerate(plans[0].sources):
        shares = [mine[number] for mine in batches]
        assert len({len(share) for share in shares}) == 1
        trained = 0
        for sequence in (sequence for share in shares for sequence in share):
            item = corpus.dataset[sequence]
            assert corpus.names[item["source"]] == source
            trained += int(item["loss_mask"].sum())
            assert sequence >= 0 or item["loss_mask"].sum() == 0
            taken.update([sequence] if sequence >= 0 else [])
        assert trained > 0
    assert taken == dict.fromkeys(range(80), 1)
    assert set(plans[0].sources) == {"mine", "x", "y"}


def test_ratios_of_validation_files(folder: Path) -> None:
    corpus = opened(folder, "val", val_files=f"{folder}/a.parquet:0.2 {folder}/b.parquet:3")
    taken = [sequence for batch in ValidationBatches(corpus, 8, 0, 1) for sequence in batch]
    assert len(taken) == len(set(taken)) == 40
    assert taken == [sequence for batch in ValidationBatches(corpus, 8, 0, 1) for sequence in batch]
