"""Samples whose tasks know a right answer, and scenes of several people, made by hand for the report's tests."""

from soul.answers.extraction import tagged_letter
from soul.tasks.hitom import HiToM
from tests.soul.evaluate.finished_samples import TOM, sample, usage

ALONE = {"policy": usage(0.5, 100, 20)}


def give_hitom_answers(monkeypatch):
    """Right and given answers of a task, whatever its own are."""
    monkeypatch.setattr(HiToM, "target", lambda self, row: f"the {row.correct_answer}")
    monkeypatch.setattr(HiToM, "given", lambda self, row, episode: tagged_letter(episode.answer))


def answered(rewards, answers, of=TOM):
    """One sample a row; a reward of 1 or 0 by hand."""
    return [
        sample(reward, number, of=of, answer=answer, usages=ALONE)
        for number, (reward, answer) in enumerate(zip(rewards, answers, strict=True))
    ]
