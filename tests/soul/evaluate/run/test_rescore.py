"""Another judge, or another version of a prompt, over the episodes that a run has: nothing is played again."""

import json

import pytest

from soul.evaluate import command as command_line
from soul.evaluate.run.run_folder import EvaluationRun
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.judge.audit.biases import REPLIES
from soul.prompts import Prompt
from soul.testing import FakeOpenAI, Text

ROWS = 6


@pytest.fixture
def played(tmp_path):
    """A finished run of a set with a judge, one sample of which has no episode."""
    write(["humanual-opinion"], ROWS, tmp_path / "opinions.parquet")

    def script(request):
        if request.body["model"] != "under-test":
            return answer(request)
        return Text("<response>I never liked it, and here is why: it is loud.</response>")

    with FakeOpenAI(script) as fake:
        code = evaluate(fake, tmp_path, str(tmp_path / "opinions.parquet"), "policy.model=under-test", "--limit", "5")
        assert code == 0
    (folder,) = tmp_path.glob("eval-under-test-*")
    break_one(folder / "samples.jsonl")
    return folder


def evaluate(fake, out, *words):
    mine = [f"policy.base_url={fake.url}"] if any(word.startswith("policy.") for word in words) else []
    judge = [f"judge.base_url={fake.url}", "judge.api_key_env=none", "judge.max_attempts=1"]
    return command_line.main([*words, *mine, *judge, "--out", str(out)])


def break_one(journal, cause="timeout"):
    lines = [json.loads(line) for line in journal.open()]
    draft = lines[0]["draft"]
    failure = {"stage": "play", "cause": cause, "detail": "it hung"}
    lines[0]["draft"] = {**draft, "seats": None, "valid": False, "reward": None, "metrics": None, "failure": failure}
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_another_judge_scores_the_same_episodes(played, tmp_path):
    models = set()

    def strict(request):
        models.add(request.body["model"])
        return answer(request)

    before = {p: p.read_bytes() for p in played.iterdir() if p.is_file()}
    with FakeOpenAI(strict) as fake:
        assert evaluate(fake, tmp_path, "--rescore", str(played), "judge.model=strict", "--no-preflight") == 0
        asked = len(fake.requests)
        assert evaluate(fake, tmp_path, "--rescore", str(played), "judge.model=strict", "--no-preflight") == 0
        assert len(fake.requests) == asked  # a rerun has nothing to do
    assert models == {"strict"} and asked == 4  # the verdicts
    assert before == {p: p.read_bytes() for p in played.iterdir() if p.is_file()}
    (folder,) = tmp_path.glob("*-rescored-*")
    old, new = EvaluationRun.load(played), EvaluationRun.load(folder)
    assert new.settings["policy"] == old.settings["policy"] and new.settings["episodes_of"] == played.name
    for was, is_now in zip(old.samples, new.samples, strict=True):
        assert is_now.draft.seats == was.draft.seats and is_now.record == was.record
        assert "policy" not in is_now.usage  # it cost nothing now
    broken, *whole = sorted(new.samples, key=lambda sample: sample.draft.valid)
    assert broken.draft.failure.cause == "timeout" and all(s.draft.valid for s in whole)
    assert all(s.draft.reward == was.draft.reward for s, was in zip(whole, _valid(old), strict=True))


def _valid(run):
    return [sample for sample in run.samples if sample.draft.valid]


def test_a_dialogue_is_judged_again_with_all_that_was_said_and_done(tmp_path):
    """An episode of Sotopia holds acts beside what the seats saw: both come from the journal."""
    write(["sotopia"], 3, tmp_path / "scenes.parquet")

    def script(request):
        leaves = Text('{"action_type": "leave", "argument": ""}')
        return leaves if request.body["model"] == "under-test" else answer(request)

    with FakeOpenAI(script) as fake:
        assert evaluate(fake, tmp_path, str(tmp_path / "scenes.parquet"), "policy.model=under-test") == 0
        (folder,) = tmp_path.glob("eval-under-test-*")
        assert evaluate(fake, tmp_path, "--rescore", str(folder), "judge.model=other") == 0
    (again,) = tmp_path.glob("*-rescored-*")
    old, new = EvaluationRun.load(folder), EvaluationRun.load(again)
    assert new.settings["roles"]["partner"] == old.settings["roles"]["partner"] != new.settings["roles"]["judge"]
    assert len(new.samples) == 3 and [s.draft.episode["acts"] for s in new.samples] == [
        s.draft.episode["acts"] for s in old.samples
    ]
    assert all(s.draft.valid and s.draft.episode["acts"] for s in new.samples)
    assert [s.draft.reward for s in new.samples] == [s.draft.reward for s in old.samples]
    assert (again / "samples.parquet").is_file()


def test_a_run_decides_what_is_rescored(played, tmp_path):
    with FakeOpenAI(answer) as fake:
        for word in ("hitom", "--suite=paper", "policy.model=other", "partner.model=other", "tasks.hitom=1"):
            assert evaluate(fake, tmp_path, "--rescore", str(played), word) == 2
        assert not fake.requests


def test_a_new_prompt_version_sets_the_old_samples_aside_and_asks_only_what_changed(played, tmp_path, monkeypatch):
    """The stamp of a sample is of its record and its judge prompts."""
    from soul import tasks

    task = tasks.load("humanual-opinion")
    newer = tuple(Prompt(prompt, prompt.id.replace(".v2", ".v3")) for prompt in task.prompts)
    words = [str(tmp_path / "opinions.parquet"), "policy.model=under-test", "--limit", "5"]
    write(["hitom"], 3, tmp_path / "stories.parquet")
    with FakeOpenAI(
        lambda request: (
            Text("<response>B, it is.</response>") if request.body["model"] == "under-test" else answer(request)
        )
    ) as fake:
        words.insert(0, str(tmp_path / "stories.parquet"))
        # The samples know the address: a run behind another one is another run.
        assert evaluate(fake, tmp_path, *words) == 0
        first = {folder for folder in tmp_path.glob("eval-under-test-*") if folder != played}
        asked = len(fake.requests)
        monkeypatch.setattr(type(task), "prompts", newer)
        assert evaluate(fake, tmp_path, *words) == 0
        again = len(fake.requests) - asked
        assert evaluate(fake, tmp_path, *words) == 0
        assert len(fake.requests) == asked + again
    # The judge is called twice, and grades known replies; five opinions, whose verdicts are in the cache because only
    # the prompt's id has changed; the stories stay.
    assert again == 1 + 2 + len(REPLIES) + 5
    (old,) = first
    assert len(EvaluationRun.load(old).samples) == len((old / "samples.jsonl").read_text().splitlines()) == 8
    assert len((old / "samples.jsonl.1").read_text().splitlines()) == 8 and not (old / "samples.jsonl.2").exists()
