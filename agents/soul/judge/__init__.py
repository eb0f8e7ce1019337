"""The judge gateway: ask a model to fill a schema; get a valid instance or a typed failure, never an invented score.

    judge = Judge.connect(Endpoint(model="gpt-5-nano"))
    data = {"reply": text}
    verdict = await judge.ask(Verdict, "Score the reply from 0 to 10.", data, policy_texts=[text], min_words=3)

Where to find things:

    gateway.py                   all roles of a run; they share connections, limits and cache
    judge.py                     `Judge.ask` for an instance of a schema, `ChatModel.chat` for a turn
    roles.py, cli_overrides.py   judge, feedback, partner, environment: settings, variables, inheritance; from the shell
    mirrorbench_judgments.py     how human does a simulated user sound? MirrorBench's three judgments
    cache.py, ledger.py          answers on disk; what a run spent, by task and role
    client.py                    one endpoint: retries, deadline, accounting
    limits.py                    where calls wait: concurrency, rates, budget
    rates.py                     token bucket; learns how many requests an endpoint takes, from its 429s
    circuit_breaker.py           stops asking an endpoint that is down
    wait_notice.py               logs what calls wait for
    preflight.py, load.py        checks before a run starts; its expected calls, price and time
    __main__.py                  the command: show, check, canaries, agree

    call/                        one request
        endpoint.py              the settings of a model: address, key, limits, prices
        http.py                  the connections to an endpoint
        exchange.py              sends a request over them, and classifies its failure
        completion.py            reads the response
        structured.py            asks for JSON of a schema and validates it
        untrusted.py             makes a policy's text safe to show to a judge
        usage.py                 counters: tokens, cost, latency
    audit/                       how good is this judge?
        canaries.py              does it fall for known tricks? (canary_cases.py lists them)
        human_agreement.py       does it agree with people? (human_labels.py reads their labels)
        agreement_statistics.py  alpha, kappa, correlations, with intervals
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
