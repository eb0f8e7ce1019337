"""CoSER and MirrorBench on real records, with judges behind real HTTP: what is asked, how often, and what it costs.

The endpoint is our own (`FakeOpenAI`); every request in it was sent over a socket, through the gateway and its cache.
"""

import asyncio
import json
import statistics
from collections import Counter

import pytest

from data import mirrorbench
from soul.judge import Gateway, GatewaySettings
from soul.judge.mirrorbench_judgments import GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS
from soul.metrics.lexical import MIN_TOKENS, lexical_score, lexis, likeness
from soul.session import RefineSettings, run_session
from soul.tasks.coser import MAX_ROUNDS, MIN_TURNS
from soul.tasks.coser_review import CRITICS
from soul.tasks.coser_stage import END
from soul.tasks.mirrorbench import DEVIATION, MirrorBenchRow
from soul.testing import FakeOpenAI, Json, Text, scripted_players
from tests.soul.samples import source
from tests.soul.tasks.coser_scenes import MERGED, TASK, role
from tests.soul.tasks.mirrorbench_talks import CHEAP, Same, play, speaker
from tests.soul.tasks.mirrorbench_talks import TASK as MIRROR

ROWS = 6  # of a corpus


def sessions(task, rows, policy_of, fake, folder):
    """The sessions of the rows, over HTTP, with a cache in `folder`."""

    async def run():
        section = {"base_url": fake.url, "api_key_env": "none", "cache_dir": str(folder)}
        gateway = Gateway.connect(GatewaySettings.from_sections({"judge": section}))
        refine = RefineSettings(when="below:-1")  # drafts only
        try:
            asked = (run_session(task, row, scripted_players(policy_of(row)), gateway, refine) for row in rows)
            return await asyncio.gather(*asked)
        finally:
            await gateway.close()

    done = asyncio.run(run())
    assert all(session.draft.valid for session in done), [session.draft.failure for session in done]
    return [session.draft for session in done]


# --- CoSER


def coser_rows():
    records = json.loads(source("coser", "test_set_public_domain.json").read_text())
    return [TASK.row_type.model_validate({"index": i, "circumstance": record}) for i, record in enumerate(records)]


def impatient(request):
    """A director who ends every scene as soon as it may, and critics who find one flaw each."""
    if role(request) == "predictor":
        return Json({"reasoning": "Enough.", "next_speaker": END})
    if role(request) == "narrator":
        return Text("Rain.")
    flaws = [{"flaw": "He is cold.", "severity": 3}]
    if role(request) == "critic":
        return Json({**{name: flaws for name in CRITICS}, "critique": "Warm to each other."})
    return Json({"flaws": flaws, "critique": "Warm to each other."})


@pytest.mark.parametrize("task, calls", [(TASK, 4), (MERGED, 1)])
def test_a_real_scene_costs_four_calls_or_one(task, calls, tmp_path):
    rows = coser_rows()[:ROWS]
    with FakeOpenAI(impatient) as fake:
        drafts = sessions(task, rows, lambda row: "[Well.] I have something to say to you all.", fake, tmp_path)
        asked = Counter(role(request) for request in fake.requests)
    critics = {name: asked[name] for name in asked if name not in ("predictor", "narrator")}
    assert sum(critics.values()) == calls * len(rows) == task.calls_per_episode["judge"] * len(rows)
    assert set(critics) == (set(CRITICS) if calls == 4 else {"critic"})
    for draft in drafts:
        assert MIN_TURNS == draft.verdict.metrics["turns"] <= MAX_ROUNDS
        assert draft.verdict.reward == pytest.approx((100 - 5 * (3 - 0.3 * 6)) / 100)


# --- MirrorBench


def rows_by_corpus():
    files = sorted(source("mirrorbench").glob("*_mirror.jsonl"))
    rows = [MirrorBenchRow.model_validate(record) for record in mirrorbench.convert(files)]
    return {name: [row for row in rows if row.dataset == name] for name in dict.fromkeys(row.dataset for row in rows)}


def undecided(request):
    """Judges who cannot tell a program from a human: what is left is the lexical score."""
    answers = {
        GTEVAL_INSTRUCTIONS: {"score": 0.5},
        PAIRWISE_INSTRUCTIONS: {"human": "tie"},
        RUBRIC_INSTRUCTIONS: {"human": "YES"},
    }
    return Json({"reasoning": "?", **next(answer for prompt, answer in answers.items() if request.asks(prompt))})


def human(row):
    return speaker(row.user_turns)


@pytest.mark.parametrize("task, samples", [(MIRROR, (1, 3, 2)), (CHEAP, (1, 1, 1))])
def test_every_sample_of_a_judgment_is_a_request(task, samples, tmp_path):
    rows = [row for of_corpus in rows_by_corpus().values() for row in of_corpus[:ROWS]]
    with FakeOpenAI(undecided) as fake:
        sessions(task, rows, human, fake, tmp_path)
        prompts = (GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS)
        counts = [sum(request.asks(prompt) for request in fake.requests) for prompt in prompts]
        assert counts == [count * len(rows) for count in samples]
        assert sum(counts) == task.calls_per_episode["judge"] * len(rows)
        sessions(task, rows, human, fake, tmp_path)
        assert len(fake.requests) == sum(counts)  # a second run of the same samples asks nobody


def test_a_constant_word_loses_to_the_human_in_every_corpus_even_where_the_judges_cannot_tell(tmp_path):
    """The blind spot as it was, and what is left of it: one token gets a fifth of the lexical score at most.

    The same word in several turns is two tokens, one of which begins with a space.

    A policy that says "ok" and no more is not even judged: this is an opening without an answer. "Yes" is judged.
    """
    unguarded = {}
    for name, rows in rows_by_corpus().items():
        unguarded[name] = statistics.fmean(likeness(lexis(["ok"]), lexis(row.user_turns), DEVIATION) for row in rows)
        long_enough = [row for row in rows if "lexical" in human_verdict(row).metrics]
        assert len(long_enough) >= 0.8 * len(rows)
        assert all(lexical_score(["ok"], row.user_turns, DEVIATION) <= 1 / MIN_TOKENS for row in long_enough)
        with FakeOpenAI(undecided) as fake:
            ok = sessions(CHEAP, long_enough[:40], lambda row: "ok", fake, tmp_path)
            yes = sessions(CHEAP, long_enough[:40], lambda row: "yes", fake, tmp_path)
            people = sessions(CHEAP, long_enough[:40], human, fake, tmp_path)
        assert all(draft.contentless and draft.verdict.reward == 0.0 for draft in ok)
        assert all(draft.verdict.metrics["lexical"] <= 2 / MIN_TOKENS for draft in yes)
        assert all(draft.verdict.metrics["lexical"] == 1.0 for draft in people)
        for mine, theirs in zip(yes, people, strict=True):
            assert theirs.verdict.reward - mine.verdict.reward >= (1 - 2 / MIN_TOKENS) / 4 - 1e-9
    assert sum(value > 0.8 for value in unguarded.values()) == 3  # what the guard is for


def human_verdict(row):
    """The verdict of the human's own turns, by the same judges in this process."""
    return asyncio.run(CHEAP.judge(row, play(row, row.user_turns)[0], Same()))


def test_without_enough_human_text_the_reward_is_the_mean_of_the_judgments():
    short = [row for rows in rows_by_corpus().values() for row in rows if "lexical" not in human_verdict(row).metrics]
    assert len(short) >= 25 and {row.dataset for row in short} <= {"chatbot_arena", "oasst1", "qulac"}
    for row in short:
        metrics = human_verdict(row).metrics
        judged = statistics.fmean(metrics[name] for name in ("gteval", "pairwise", "rubric_and_reason"))
        assert metrics["overall"] == pytest.approx(judged)
