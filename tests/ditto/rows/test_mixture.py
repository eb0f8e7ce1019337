"""A mixture of tasks: how many rows of each, which ones, and that a run and its plan agree about it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from ditto.rows.dataset import SoulDataset
from ditto.rows.mixture import MixtureSettings, draw
from soul import examples
from soul.examples.command import write
from soul.rows.task_files import TaskRow, read_rows

COUNTS = {"lifechoices": 40, "humanual": 7, "humanual-book": 20}


def rows_of(counts):
    return [
        TaskRow(examples.load(name).task, examples.load(name).row(number), f"{name}.parquet", number)
        for name, count in counts.items()
        for number in range(count)
    ]


ROWS = rows_of(COUNTS)


def counted(rows):
    return dict(Counter(row.task.name for row in rows))


def test_the_draw_depends_on_the_seed_and_on_nothing_else():
    def numbers(rows, seed=1, **weights):
        return [row.number for row in draw(rows, 10, weights, seed) if row.task.name == "lifechoices"]

    assert numbers(ROWS, seed=1) != numbers(ROWS, seed=2)
    # other tasks, and what they weigh, change nothing
    assert numbers(ROWS) == numbers(rows_of({"lifechoices": 40})) == numbers(ROWS, humanual=3)


@given(per_task=st.one_of(st.none(), st.integers(1, 50)), weight=st.floats(0, 4), seed=st.integers())
def test_numbers_are_as_asked(per_task, weight, seed):
    drawn = draw(ROWS, per_task, {"humanual": weight}, seed)
    base = {name: min(count, per_task or count) for name, count in COUNTS.items()}
    base["humanual"] = round(base["humanual"] * weight)
    assert counted(drawn) == {name: count for name, count in base.items() if count}


class OneToken:
    """A tokenizer that finds one token in every prompt."""

    def apply_chat_template(self, messages, **_):
        return [1]


def test_the_dataset_trains_on_the_mixture_and_validates_on_its_own(tmp_path):
    files = {name: str(tmp_path / f"{name}.parquet") for name in COUNTS}
    for name, count in COUNTS.items():
        write([name], count, tmp_path / f"{name}.parquet")
    mixture = {"rows_per_task": 10, "val_rows_per_task": 5, "weights": {"humanual": 2.0}}
    settings = {"max_prompt_length": 10, "filter_overlong_prompts": False, "seed": 3, "mixture": mixture}
    sets = {"train_files": list(files.values()), "val_files": [files["lifechoices"], files["humanual"]]}
    config = OmegaConf.create(sets | settings)
    train, val = (SoulDataset(config[name], OneToken(), config) for name in sets)
    assert counted(train.rows) == {"lifechoices": 10, "humanual": 14, "humanual-book": 10}
    assert counted(val.rows) == {"lifechoices": 5, "humanual": 5}
    assert train.rows == MixtureSettings.model_validate(mixture).training_rows(read_rows(list(files.values())), 3)
    assert len(SoulDataset(config.val_files, OneToken(), config, max_samples=3)) == 3
    config.val_files = list(config.train_files)  # validation on the training files draws its own rows
    train, val = (SoulDataset(config[name], OneToken(), config) for name in sets)
    assert len(train) == 34 and counted(val.rows) == dict.fromkeys(COUNTS, 5)
