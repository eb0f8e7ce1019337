"""CoSER and MirrorBench on real records, with judges behind real HTTP: what is asked, how often, and what it costs.

The endpoint is our own (`FakeOpenAI`); every request in it was sent over a socket, through the gateway and its cache.
"""

import asyncio
import statistics

from data import mirrorbench
from soul.judge import Gateway, GatewaySettings
from soul.judge.mirrorbench_judgments import GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS
from soul.metrics.lexical import MIN_TOKENS, lexical_score, lexis, likeness
from soul.session import RefineSettings, run_session
from soul.tasks.mirrorbench import DEVIATION, MirrorBenchRow
from soul.testing import FakeOpenAI, Json, scripted_players
from tests.soul.samples import source
from tests.soul.tasks.mirrorbench_talks import CHEAP, Same, play, speaker


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
