"""The judge gateway: a schema goes in, an instance comes out, or a typed failure. Never an invented score.

    judge = Judge.connect(Endpoint(model="gpt-5-nano"))
    verdict = await judge.ask(Verdict, "Score the reply from 0 to 10.", {"reply": text}, said=[text], min_words=3)

Where things are:

    endpoint.py    where a model lives, how it is asked, what it costs
    roles.py       judge, feedback, partner, environment: settings, environment variables, who inherits what
    gateway.py     all roles of a run, sharing connections, limits and cache
    judge.py       ask for an instance of a schema; chat
    structured.py  how an answer's form is asked for and read
    untrusted.py   what a policy wrote, on its way to a judge
    line.py        requests: retries, deadline, failure classes, accounting
    gate.py, limits.py, rates.py, breaker.py    caps, rates, budget and circuit breaker, global to a run
    cache.py, usage.py                          answers on disk; tokens, money, latency
    realism.py, agree.py, agreement.py, canaries.py    is this judge any good? (python -m soul.judge)
"""

from soul.judge.call.endpoint import ANY_KEY, Endpoint
from soul.judge.call.exchange import classify
from soul.judge.call.untrusted import Contentless
from soul.judge.call.usage import Usage
from soul.judge.gateway import Gateway
from soul.judge.judge import ChatModel, Judge
from soul.judge.roles import ROLES, GatewaySettings, Role

__all__ = [
    "ANY_KEY",
    "ROLES",
    "ChatModel",
    "Contentless",
    "Endpoint",
    "Gateway",
    "GatewaySettings",
    "Judge",
    "Role",
    "Usage",
    "classify",
]
