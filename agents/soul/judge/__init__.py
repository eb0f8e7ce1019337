"""The judge gateway: ask a model to fill a schema; get a valid instance or a typed failure, never an invented score.

    judge = Judge.connect(Endpoint(model="gpt-5-nano"))
    data = {"reply": text}
    verdict = await judge.ask(Verdict, "Score the reply from 0 to 10.", data, policy_texts=[text], min_words=3)

The way of one call:

    judge.py         `Judge.ask` for an instance of a schema, `ChatModel.chat` for a turn of a conversation
    call/untrusted   a policy's text as data; call/structured: JSON of a schema, and its validation
    client.py        one endpoint: cache.py (equal questions cost one call), retries, deadline, call/usage.py
    limits.py        where calls wait: concurrency, rates, circuit breaker, budget
    call/http.py     the request, the completion, the cause of a failure

Around it: gateway.py (all roles of a run), roles.py (settings), ledger.py (what a run spent), preflight.py and load.py
(before a run), and audit/: does the judge fall for known tricks, does it agree with people?
"""

from soul.judge.call.endpoint import ANY_KEY, Endpoint  # noqa: F401
from soul.judge.call.http import classify  # noqa: F401
from soul.judge.call.untrusted import Contentless  # noqa: F401
from soul.judge.call.usage import Usage  # noqa: F401
from soul.judge.gateway import Gateway  # noqa: F401
from soul.judge.judge import ChatModel, Judge  # noqa: F401
from soul.judge.roles import ROLES, GatewaySettings, Role  # noqa: F401
