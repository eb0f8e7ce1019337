"""What calls cost: counted per session, added up in any order, kept on disk, shown to people.

Promise under test: sums do not depend on the order of adding, latencies are known to 5 percent, money is what the
prices say (to the cent and beyond), and what was not priced is never shown as free.
"""

import asyncio
import io
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from soul.judge import Endpoint, Usage
from soul.judge.call.endpoint import LIST_PRICES
from soul.judge.call.http import Tokens
from soul.judge.ledger import Ledger, money, table
from soul.one_turn import Critique
from soul.testing import FakeOpenAI, Json, fake_judge

PRICED = {"price_in": 0.05, "price_cached": 0.005, "price_out": 0.4}
COUNT = st.integers(0, 10**6)
EXACT = COUNT.map(lambda n: n / 1024)  # sums of these are exact, in any order
COUNTERS = st.builds(
    Usage,
    **{name: COUNT for name in ("calls", "requests", "retries", "reasks", "cache_hits", "prompt_tokens", "unpriced")},
    **{name: COUNT for name in ("cached_tokens", "completion_tokens", "reasoning_tokens")},
    **{name: EXACT for name in ("cost_usd", "seconds", "queued_s")},
    failures=st.dictionaries(st.sampled_from(["timeout", "invalid", "auth"]), st.integers(1, 99)).map(Counter),
    latency=st.dictionaries(st.integers(-50, 50), st.integers(1, 99)).map(Counter),
)


def merged(*usages):
    total = Usage()
    for usage in usages:
        total.merge(usage)
    return total


# --- adding up


@settings(deadline=None, max_examples=40)
@given(COUNTERS, COUNTERS, COUNTERS)
def test_merging_is_addition(a, b, c):
    before = [usage.to_json() for usage in (a, b, c)]
    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c)) == merged(c, a, b)
    assert merged(a, Usage()) == merged(Usage(), a) == a
    assert [usage.to_json() for usage in (a, b, c)] == before  # what is added is not changed
    for name in vars(a):
        assert getattr(merged(a, b), name) == getattr(a, name) + getattr(b, name), name


# --- latency


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_percentiles_are_within_five_percent(latencies, share):
    expected = float(np.quantile(latencies, share, method="inverted_cdf"))
    usage = Usage()
    for seconds in latencies:
        usage.answered(Endpoint(), Tokens(), seconds, (0.0, 0.0))
    found = usage.percentile(share)
    assert expected * (1 - 1e-9) <= found <= expected * 1.05 * (1 + 1e-9)


# --- money


def dollars(prompt, cached, completion, price_in, price_out, price_cached=None):
    """The bill in exact arithmetic."""
    price_cached = price_in if price_cached is None else price_cached
    fresh, kept, out = (Fraction(str(price)) for price in (price_in, price_cached, price_out))
    return (fresh * (prompt - cached) + kept * cached + out * completion) / 10**6


FREE = {"price_in": 0, "price_out": 0}


@pytest.mark.parametrize("prices", [PRICED, {"price_in": 1.25, "price_out": 10}, {**PRICED, "price_cached": 0}, FREE])
def test_the_cost_is_what_the_prices_say(prices):
    critique = "Look again at who had left. " * 20
    fake = FakeOpenAI(
        lambda request: Json({"critique": critique}, cached_tokens=request.number * 3, reasoning_tokens=7)
    )
    judge = fake_judge(fake, **prices)
    for n in range(5):
        asyncio.run(judge.ask(Critique, "Be brief.", {"n": n}))
    prompts = [len(request.text.split()) for request in fake.requests]
    completion = len(json.dumps({"critique": critique}).split()) + 7
    expected = sum(dollars(prompt, 3 * n, completion, **prices) for n, prompt in enumerate(prompts))
    usage = judge.usage
    assert usage.cost_usd == pytest.approx(float(expected), rel=1e-12)
    assert (usage.prompt_tokens, usage.cached_tokens) == (sum(prompts), 3 * (0 + 1 + 2 + 3 + 4))
    assert (usage.completion_tokens, usage.reasoning_tokens) == (5 * completion, 35)
    assert (usage.calls, usage.requests, usage.unpriced) == (5, 5, 0)


LARGE = Tokens(40_000_000, 0)  # two dollars
UNPRICED = [
    ([({}, LARGE)], "price unknown"),
    ([({"price_in": 1}, LARGE)], "price unknown"),
    ([(PRICED, Tokens())], "price unknown"),
    ([(PRICED, LARGE), ({}, LARGE)], "at least $2.00"),
    ([(PRICED, LARGE), (PRICED, Tokens())], "at least $2.00"),
    ([(FREE, LARGE)], "$0.00"),
    ([(PRICED, LARGE)] * 1000, "$2,000.00"),
    ([], "$0.00"),
]


@pytest.mark.parametrize("answers, shown", UNPRICED)
def test_what_is_not_priced_is_never_shown_as_free(answers, shown):
    parts = []
    for prices, told in answers:
        parts.append(Usage(calls=1, requests=1))
        parts[-1].answered(Endpoint(model="mine", **prices), told, 0.1, (0.0, 0.0))
    assert money(merged(*parts)) == shown


def test_a_known_model_at_its_own_address_has_the_list_price(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    page = (Path(__file__).parents[4] / "docs" / "judge_limits.md").read_text(encoding="utf-8")
    for model, (prompt, cached, answer, month) in LIST_PRICES.items():
        assert f"| `{model}` | {prompt:g} | {cached:g} | {answer:g} | {month} |" in page
        assert Endpoint(model=model).cost(2_000_000, 1_000_000, 1_000_000) == pytest.approx(prompt + cached + answer)
        assert Endpoint(model=model, price_in=1, price_out=2).prices == (1, 1, 2)
        assert not Endpoint(model=model, base_url="http://127.0.0.1:8000/v1").priced
        assert not Endpoint(model=model, price_in=1).priced


# --- the ledger


def test_the_table_shows_what_was_spent():
    judge = Usage(calls=2000, requests=1500, cache_hits=500, prompt_tokens=40_000_000, failures=Counter(timeout=3))
    judge.answered(Endpoint(**PRICED), LARGE, 1.0, (0.0, 0.0))
    feedback = Usage(calls=10, requests=10)
    feedback.answered(Endpoint(model="mine"), LARGE, 3.0, (0.0, 0.0))
    ledger, console = Ledger(), Console(width=200, file=io.StringIO())
    ledger.add("hitom", {"judge": judge, "feedback": feedback})
    console.print(table(ledger))
    printed = console.file.getvalue().splitlines()
    lines = [[cell.strip() for cell in line.strip(" │").split("│")] for line in printed]
    rows = {tuple(line[:2]): line[2:] for line in lines if len(line) == 10}
    assert rows["hitom", "judge"] == ["2,000", "25%", "3", "80,000,000", "0", "1.00", "1.00", "$2.00"]
    *_, median, _, cost = rows["hitom", "feedback"]
    assert 3.0 <= float(median) <= 3.15 and cost == "price unknown"
    assert rows["all", "all"][0] == "2,010" and rows["all", "all"][-1] == "at least $2.00"
