"""Samples whose tasks know a right answer, and scenes of several people, made by hand for the report's tests."""

from soul.answers.extraction import tagged_letter
from soul.tasks.hitom import HiToM
from tests.soul.evaluate.finished_samples import TOM, sample, usage

THOUGHT = "He must not know <b>this</b>."
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


def scene(reward=0.5, number=0):
    """A scene of CoSER with two characters and the narrator; one has a thought, one reasons and says nothing aloud."""
    line = sample(reward, number, of="coser")
    said = {
        "Anne": [f"[{THOUGHT}] Good evening. (sits down)", "Who put out the lamp?"],
        "Ben": ["<think>Stay quiet.</think>[It was me.]"],
    }
    line.draft.seats = {
        seat: [
            {"role": "system", "content": f"You are {seat}."},
            *(message for text in turns for message in ({"role": "user", "content": "..."}, turn(text))),
        ]
        for seat, turns in said.items()
    }
    line.draft.episode["lines"] = [
        {"speaker": "Anne", "text": "Good evening. (sits down)"},
        {"speaker": "Environment", "text": "The lamp goes out."},
        {"speaker": "Ben", "text": ""},
        {"speaker": "Anne", "text": "Who put out the lamp?"},
    ]
    return line


def encounter(reward=0.1, number=0):
    """An encounter of Sotopia in which the policy plays the second character."""
    line = sample(reward, number, of="sotopia", metrics={"overall": reward})
    line.record = {**line.record, "eval_position": "agent2"}
    me, other = line.record["agent2_name"], line.record["agent1_name"]
    line.draft.seats = {"policy": [{"role": "system", "content": "You."}, turn("<think>Smile.</think>{}")]}
    line.draft.episode["acts"] = [
        {"speaker": other, "kind": "speak", "text": "Hello.", "well_formed": True, "held_back": False},
        {"speaker": me, "kind": "action", "text": "waves", "well_formed": False, "held_back": False},
        {"speaker": other, "kind": "none", "text": "", "well_formed": True, "held_back": True},
    ]
    return line


def turn(text):
    return {"role": "assistant", "content": text}
