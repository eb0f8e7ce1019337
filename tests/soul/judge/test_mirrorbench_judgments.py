"""GTEval and pairwise indistinguishability with scripted judges.

Promise under test: A and B are a fair coin that can be thrown again, and a choice is mapped back to what it means. What
judges see is in tests/soul/tasks/test_mirrorbench_verdict.py.
"""

import asyncio
import random

import pytest

from soul.judge import Gateway, GatewaySettings
from soul.judge.mirrorbench_judgments import (
    GTEVAL_INSTRUCTIONS,
    PAIRWISE_INSTRUCTIONS,
    RUBRIC_INSTRUCTIONS,
    Samples,
    judgments,
    pairwise,
    simulated_slot,
)
from soul.testing import FakeOpenAI, Json, fake_judge

REAL = [
    {"role": "user", "content": "whats a good knot for a hammock"},
    {"role": "assistant", "content": "A bowline."},
    {"role": "user", "content": "ok thx"},
]
SIMULATED = [
    {"role": "user", "content": "Could you recommend a suitable knot for hanging a hammock?"},
    {"role": "assistant", "content": "A bowline."},
    {"role": "user", "content": "Thank you so much! That is very helpful."},
]


def ask(question, fake, *arguments, **settings):
    judge = fake_judge(fake, **{"max_attempts": 1, "max_reasks": 0, **settings})
    return asyncio.run(question(judge, *arguments))


def finder(taken):
    """A judge that knows the real user by the text, and names the slot of the `taken` one."""

    def answer(request):
        data = request.data
        real = next(slot for slot in "AB" if data[slot][0]["content"] == REAL[0]["content"])
        other = {"A": "B", "B": "A"}[real]
        return Json({"reasoning": "?", "human": {"real": real, "simulated": other, "tie": "tie"}[taken]})

    return FakeOpenAI(answer)


@pytest.mark.parametrize("taken, score", [("real", 0.0), ("tie", 0.5), ("simulated", 1.0)])
def test_a_choice_is_mapped_back_from_its_slot(taken, score):
    slots = set()
    for seed in range(12):
        fake = finder(taken)
        verdict = ask(pairwise, fake, REAL, SIMULATED, seed)
        assert (verdict.taken, verdict.score) == (taken, score)
        shown = fake.requests[0].data
        assert shown[verdict.simulated_slot][0]["content"] == SIMULATED[0]["content"]
        slots.add(verdict.simulated_slot)
    assert slots == {"A", "B"}


def test_a_judge_that_always_says_a_wins_half_of_the_time():
    rng = random.Random(0)
    pairs = [[[{"role": "user", "content": f"{who} {rng.random()}"}] for who in ("real", "fake")] for _ in range(400)]
    share = sum(simulated_slot(real, simulated, seed=7) == "A" for real, simulated in pairs) / len(pairs)
    assert 0.42 < share < 0.58  # 400 throws of a fair coin: 0.5 +- 0.025


def test_every_sample_is_a_call_of_its_own_also_with_a_cache(tmp_path):
    answers = {GTEVAL_INSTRUCTIONS: {"score": 0.5}, PAIRWISE_INSTRUCTIONS: {"human": "tie"}}
    answers[RUBRIC_INSTRUCTIONS] = {"human": "YES"}

    def script(request):
        return Json({"reasoning": "?", **next(answer for prompt, answer in answers.items() if request.asks(prompt))})

    fake = FakeOpenAI(script)
    with fake:
        section = {"base_url": fake.url, "api_key_env": "none", "cache_dir": str(tmp_path)}
        gateway = Gateway.connect(GatewaySettings.from_sections({"judge": section}))

        async def ask(samples):
            return await judgments(gateway.judge, REAL, SIMULATED, 0, samples)

        async def all_of_it():
            three = Samples(3, 3, 3)
            first = await ask(three)
            assert len(fake.requests) == 9
            assert await ask(three) == first and len(fake.requests) == 9  # the same samples again: from the cache
            await gateway.close()
            return first

        found = asyncio.run(all_of_it())
    assert found.scores == {"gteval": 0.5, "pairwise": 0.5, "rubric_and_reason": 1.0}
