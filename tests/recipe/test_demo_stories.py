"""The demo's rows and the mixture that its warm start imitates."""

import random
from pathlib import Path

import pytest

from recipe.demo import coach, evaluate, stories
from recipe.demo.stories import HITOM, PARATOMI, Form
from soul.rows.task_files import read_rows

both_forms = pytest.mark.parametrize("form", [HITOM, PARATOMI], ids=lambda form: form.task.name)


@pytest.fixture(scope="module")
def records() -> list[stories.Record]:
    return stories.exercises(60, seed=80)


def test_files_are_read_by_the_task_and_share_no_story(tmp_path: Path) -> None:
    exercises = stories.write_files(tmp_path, n_train=40, n_heldback=20)
    train, heldback = (read_rows([str(tmp_path / f"{name}.parquet")]) for name in ("train", "heldback"))
    assert (len(train), len(heldback), len(exercises)) == (40, 20, 20)
    assert {row.task.name for row in train + heldback} == {"hitom"}
    told = {row.row.story for row in train}
    assert len(told) == 40
    assert not told & {row.row.story for row in heldback}


def test_warm_start_never_sees_a_heldback_story() -> None:
    heldback = stories.exercises(30, seed=3)
    assert heldback[0]["story"] == stories.exercises(1, seed=3)[0]["story"]  # the very stream the warm start draws from
    warm = stories.warm_records(30, heldback)
    assert not {r["story"] for r in warm} & {r["story"] for r in heldback}


def test_every_exercise_has_a_trap_and_constant_letters(records: list[stories.Record]) -> None:
    assert {r["choices"] for r in records} == {"A. green_box, B. red_crate, C. blue_basket, D. green_bottle"}
    assert sorted({r["question_order"] for r in records}) == list(stories.ORDERS)
    for record in records:
        assert stories.hasty_place(record) != record["correct_answer"]
        scene = coach.read_scene(record["story"])
        if record["question_order"] == 0:
            assert scene.truth == record["correct_answer"]


@both_forms
def test_careful_people_are_right_and_hasty_ones_wrong(
    records: list[stories.Record], tmp_path: Path, form: Form
) -> None:
    stories.write_rows(tmp_path / "rows.parquet", form.task.name, [form.record(record) for record in records])
    rows = read_rows([str(tmp_path / "rows.parquet")])
    for careful in (True, False):
        answers = [stories.say(record, careful, form) for record in records]
        assert evaluate.rewards(rows, answers) == [float(careful)] * len(records)


@both_forms
def test_the_coach_sees_the_slip_in_both_forms_and_names_no_place(records: list[stories.Record], form: Form) -> None:
    for record in records:
        task, gold = form.prompt(record)[0]["content"], record["correct_answer"]
        about_belief = record["question_order"] == 1
        hasty = coach.critique(task, gold, stories.say(record, False, form))
        careful = coach.critique(task, gold, stories.say(record, True, form))
        assert hasty.startswith("You said where the thing is in truth" if about_belief else "You did not follow")
        assert careful.startswith("You kept to what" if about_belief else "You followed the thing")
        assert coach.critique(task, gold, "It is somewhere.").startswith("Your reply did not end in the form")
        assert not any(place in hasty + careful for place in stories.CONTAINERS)


def test_warm_start_tokens_are_what_generation_sees(tmp_path: Path, records: list[stories.Record]) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers import AutoTokenizer

    from recipe.demo import tiny_model, warm_start

    rng = random.Random(2)
    samples = [stories.warm_sample(record, rng) for record in records]
    tiny_model.build(tmp_path, [text for s in samples for text in (s.messages[0]["content"], s.answer)])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for sample in samples:
        prompt, answer = warm_start.encode(tokenizer, sample.messages, sample.answer)
        direct = tokenizer.apply_chat_template(sample.messages, add_generation_prompt=True, return_dict=False)
        assert prompt == list(direct)
        whole = tokenizer.apply_chat_template([*sample.messages, {"role": "assistant", "content": sample.answer}])
        whole_ids = whole["input_ids"] if not isinstance(whole, list) else whole
        assert whole_ids[: len(prompt) + len(answer)] == prompt + answer
        assert tokenizer.decode(answer, skip_special_tokens=True) == sample.answer
        assert len(answer) <= 24 and len(prompt) <= 320
    batch = warm_start.collate([([5, 6, 7], [8, 9]), ([5], [8])], pad=0)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9], [0, 0, 0, 5, 8]]
    assert batch["labels"].tolist() == [[-100, -100, -100, 8, 9], [-100, -100, -100, -100, 8]]
    assert torch.equal(batch["attention_mask"].sum(1), torch.tensor([5, 2]))
