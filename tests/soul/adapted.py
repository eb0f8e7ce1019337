"""What the tests of the adapters to other frameworks share."""

import asyncio

from soul import examples
from soul.evaluate.run import engine
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.settings import EvaluationSettings, choose_sets, sample_requests
from soul.examples.command import write_sets
from soul.examples.endpoint import answer
from soul.judge import GatewaySettings
from soul.testing import Text

JUDGE = {"api_key_env": "none", "max_attempts": 1, "max_reasks": 0, "structured": "json_schema"}
TURNS = ['{"action_type": "speak", "argument": "I hear you."}', '{"action_type": "leave", "argument": ""}']


def policy_or_judge(request):
    """Under test: says B to a choice; in Sotopia speaks once, then leaves; anything else gets a short reply."""
    if request.body["model"] != "under-test":
        return answer(request)
    if "Story:" in request.text:
        return Text("<answer>B</answer>")
    said = sum(message["role"] == "assistant" for message in request.messages)
    return Text(
        TURNS[min(said, 1)]
        if "action_type" in request.text
        else "<response>I would rather sleep on it, and tell you tomorrow.</response>"
    )


def data_of_all_sets(folder, rows):
    """A data folder with invented rows of all sets."""
    write_sets(examples.names(), rows, folder)
    return folder


def played_by_our_engine(fake, name, data, folder):
    """The samples of a set or a parquet file, in the order of its rows."""
    sets = choose_sets([name], data)
    gateway = GatewaySettings.from_sections({"judge": {**JUDGE, "base_url": fake.url}})
    policy = gateway.judge.model_copy(update={"model": "under-test"})
    settings = EvaluationSettings(policy=policy, gateway=gateway, sets=sets)
    journal = Journal(folder)
    try:
        asyncio.run(engine.evaluate(settings, sample_requests(settings), journal, lambda sample: None))
    finally:
        journal.close()
    return sorted(journal.samples.values(), key=lambda sample: sample.number)
