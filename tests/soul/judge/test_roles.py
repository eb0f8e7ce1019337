"""Who is asked what: from sections and environment variables to endpoints.

Promise under test: what a role does not set is the judge's, as far as it may be; a key goes to the address that it
belongs to and to no other; a mistake is named by section and key before anybody is asked.
"""

import itertools
import re

import pytest

from soul.errors import BadSettings
from soul.judge import ROLES, Endpoint, GatewaySettings
from soul.judge.call.endpoint import DEFAULT_MODEL, DEFAULT_URL
from soul.judge.roles import JudgePolicy, policy_endpoint

HERE, THERE = "http://judge.invalid/v1", "http://elsewhere.invalid/v1"
KEY = "sk-sentinel-0123456789abcdef"
VARIABLES = ["OPENAI_BASE_URL", "OPENAI_API_KEY", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING", "OPENAI_AGENT_MODEL"]
VARIABLES += ["OPENAI_AGENT_BASE_URL", "OPENAI_AGENT_API_KEY", "OPENAI_AGENT_REASONING_EFFORT", "SOUL_TEST_KEY"]
TRANSPORT = {"timeout_s": 7.0, "max_attempts": 2, "max_reasks": 3, "concurrency": 5}
OF_A_MODEL = {"reasoning_effort": "high", "temperature": 0.3, "max_output_tokens": 99, "structured": "prompt"}
OF_A_MODEL |= {"requests_per_minute": 10.0, "tokens_per_minute": 1000.0}
OF_A_MODEL |= {"price_in": 1.0, "price_cached": 0.5, "price_out": 2.0}
JUDGE = {"model": "judge-model", "base_url": HERE, "api_key_env": "SOUL_TEST_KEY", **TRANSPORT, **OF_A_MODEL}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def of(**sections):
    return GatewaySettings.from_sections(sections)


# --- what is set nowhere


def test_without_settings_all_roles_are_the_judge_of_the_paper():
    settings = of()
    assert settings.roles == {role: Endpoint() for role in ROLES} and settings.jury == ()
    assert (settings.judge.model, settings.judge.url) == (DEFAULT_MODEL, DEFAULT_URL) == ("gpt-5-nano", DEFAULT_URL)
    assert settings.by_task == {"coser": Endpoint(model="gpt-5.4")}  # the paper's judge of CoSER, section 5
    assert settings.policy == JudgePolicy() and len(settings.endpoints) == 2


def test_judge_model_name_holds_for_all_tasks(monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL_NAME", "mine")
    assert of().by_task == {} and of(judge={"by_task": {"coser": {"model": "other"}}}).by_task["coser"].model == "other"


def test_a_tasks_own_section_changes_the_papers_judge():
    assert of(judge={"by_task": {"coser": {"price_in": 1.5}}}).by_task["coser"] == Endpoint(
        model="gpt-5.4", price_in=1.5
    )
    found = of(judge={"by_task": {"coser": {"model": "other"}, "sotopia": {"model": "third"}}}).by_task
    assert {task: endpoint.model for task, endpoint in found.items()} == {"coser": "other", "sotopia": "third"}
    # An address without a model's name: the paper's judges are looked for there, with no key of another server.
    here = of(judge={"base_url": HERE, "api_key_env": "none"}).by_task["coser"]
    assert (here.model, here.url, here.api_key_env) == ("gpt-5.4", HERE, None)


# --- what is inherited


@pytest.mark.parametrize("own", [{"model": "other"}, {"base_url": THERE}, {"model": "other", "base_url": THERE}])
def test_another_model_inherits_the_transport_and_nothing_of_the_judges_model(own):
    partner = of(judge=JUDGE, partner=own).roles["partner"]
    expected = Endpoint(**{"model": "judge-model", "base_url": HERE, **own, **TRANSPORT})
    assert partner.model_dump(exclude={"api_key_env"}) == expected.model_dump(exclude={"api_key_env"})


# --- keys

ADDRESSES = [None, HERE, THERE, f"{HERE}/"]


@pytest.mark.parametrize("judge_url, url, model", [*itertools.product(ADDRESSES, ADDRESSES, [None, "other"])])
def test_the_judges_key_is_never_used_at_another_address(judge_url, url, model):
    section = {"base_url": url, "model": model}
    judge = {"base_url": judge_url, "api_key_env": "SOUL_TEST_KEY"}
    settings = of(judge={**judge, "jury": [section | {"model": model or "x"}]}, partner=section, environment=section)
    for endpoint in (settings.roles["partner"], settings.roles["environment"], *settings.jury):
        if endpoint.url != settings.judge.url:
            assert endpoint.api_key_env is None
        if url is None:
            assert endpoint.api_key_env == "SOUL_TEST_KEY"
    assert settings.roles["feedback"].api_key_env == "SOUL_TEST_KEY"


# --- environment variables


def test_the_environment_names_the_judge(monkeypatch):
    monkeypatch.setenv("JUDGE_MODEL_NAME", "from-environment")
    monkeypatch.setenv("JUDGE_MODEL_REASONING", "low")
    monkeypatch.setenv("OPENAI_BASE_URL", THERE)
    monkeypatch.setenv("OPENAI_AGENT_MODEL", "the-policy")
    settings = of(partner={"model": "other"})
    judge = settings.judge
    assert (judge.model, judge.reasoning_effort, judge.url) == ("from-environment", "low", THERE)
    assert settings.roles["feedback"] == settings.judge
    assert settings.roles["partner"].model == "other" and settings.roles["partner"].reasoning_effort is None
    assert {endpoint.api_key_env for endpoint in settings.roles.values()} == {"OPENAI_API_KEY"}
    judge = of(judge={"model": "from-section", "reasoning_effort": "high", "base_url": HERE}).judge
    assert (judge.model, judge.reasoning_effort, judge.url) == ("from-section", "high", HERE)


P, KEYED = {"OPENAI_AGENT_MODEL": "p"}, {"OPENAI_AGENT_API_KEY": KEY}
POLICY = [
    ({}, {}, None),
    ({"OPENAI_AGENT_BASE_URL": THERE}, {}, None),
    ({**P, "OPENAI_BASE_URL": HERE}, {}, ("p", HERE, "OPENAI_API_KEY", None)),
    ({**P, "OPENAI_AGENT_BASE_URL": THERE}, {}, ("p", THERE, None, None)),
    (P, {"base_url": THERE}, ("p", THERE, None, None)),
    ({**P, **KEYED}, {}, ("p", DEFAULT_URL, "OPENAI_AGENT_API_KEY", None)),
    ({**P, **KEYED, "OPENAI_AGENT_BASE_URL": THERE}, {}, ("p", THERE, "OPENAI_AGENT_API_KEY", None)),
    ({"OPENAI_AGENT_REASONING_EFFORT": "low"}, {"model": "q"}, ("q", DEFAULT_URL, "OPENAI_API_KEY", "low")),
    (P, {"model": "q", "api_key_env": "X", "base_url": None}, ("q", DEFAULT_URL, "X", None)),
    ({**P, "JUDGE_MODEL_NAME": "j"}, {}, ("p", DEFAULT_URL, "OPENAI_API_KEY", None)),
]


@pytest.mark.parametrize("environment, overrides, expected", POLICY)
def test_the_model_under_evaluation(environment, overrides, expected, monkeypatch):
    for name, value in {"OPENAI_API_KEY": KEY, **environment}.items():
        monkeypatch.setenv(name, value)
    endpoint = policy_endpoint(overrides)
    found = endpoint and (endpoint.model, endpoint.url, endpoint.api_key_env, endpoint.reasoning_effort)
    assert found == expected


# --- the jury


def test_a_jury_of_names_and_settings():
    settings = of(judge={**JUDGE, "jury": ["judge-model", "a", {"model": "b", "base_url": THERE, "temperature": 1.0}]})
    same, a, b = settings.jury
    assert same == settings.judge
    assert a == Endpoint(model="a", base_url=HERE, api_key_env="SOUL_TEST_KEY", **TRANSPORT)
    assert b == Endpoint(model="b", base_url=THERE, api_key_env=None, temperature=1.0, **TRANSPORT)
    assert settings.endpoints == (settings.judge, a, b)


# --- mistakes


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        ({"jury": ["a", "b", "a"]}, "judge.jury has a at https://api.openai.com/v1 twice"),
        ({"model": "None"}, "judge.model=None: write null"),
        ({"max_attempts": True}, "judge.max_attempts=true: it is not a setting that is true or false"),
        ({"concurrency": 1_000_000}, "judge.concurrency=1000000: Input should be less than or equal to 10000"),
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(judge, said):
    with pytest.raises(BadSettings, match=re.escape(said)):
        of(judge=judge)


PRICES = {"price_in": 0.05, "price_out": 0.4}
FREE = {"price_in": 0, "price_out": 0}


@pytest.mark.parametrize(
    "sections, unpriced",
    [
        ({"judge": {"price_in": 0.05}}, ["gpt-5-nano at https://api.openai.com/v1"]),
        ({"judge": PRICES, "feedback": {"reasoning_effort": "high"}}, []),  # the same model: the same price
        ({"judge": PRICES, "partner": {"model": "p", "base_url": THERE}}, [f"p at {THERE}"]),
        ({"judge": PRICES, "partner": {"model": "p", "base_url": THERE, **FREE}}, []),
        ({"judge": {**PRICES, "jury": ["gpt-5-nano", "a", "b"]}}, ["a at https://api.openai.com/v1", "b at "]),
        ({"judge": {**PRICES, "jury": [{"model": "a", **PRICES}]}}, []),
    ],
)
def test_a_budget_needs_the_price_of_every_model(sections, unpriced):
    sections = {**sections, "judge": {**sections["judge"], "budget_usd": 5}}
    if not unpriced:
        assert of(**sections).policy.budget_usd == 5
        return
    with pytest.raises(BadSettings, match=r"^judge\.budget_usd=5.*judge\.price_in") as caught:
        of(**sections)
    named = str(caught.value).partition("Without a price: ")[2]
    assert all(name in named for name in unpriced)
    assert named.count(" at ") == len(unpriced)
