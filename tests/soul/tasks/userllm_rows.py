"""What the tests of UserLLM share: a row of each kind, and judges."""

import asyncio

import pytest

from soul.task_types import Episode
from soul.tasks.userllm import HumanLikeness, IntentAdherence, UserLLM

TASK = UserLLM()
LESSON = "Say less {braces} 100% \\n <b>."
CSQA = {
    "source": "commonsense_qa",
    "intent": "Find out where a bat sleeps.",
    "conversation_history": "User: Where do bats sleep? The choices: cave, barn, night sky, bridge.\nAssistant: Which?",
    "choices": ["cave", "barn", "night sky", "bridge"],
}
NQ = {
    "source": "natural_questions",
    "intent": "Get to know who built the bridge.",
    "question": "who built the bridge",
    "conversation_history": "User: who built the bridge\nAssistant: No idea. Shall I tell you about ferries?",
}
OPENS = {"source": "prism", "intent": "Explore how bees find flowers."}
GOES_ON = {
    **OPENS,
    "conversation_history": "User: do bees see colours\nAssistant: They do, but not red.",
    "is_last_turn": True,
    "turn": 1,
}
RECORDS = {"csqa": CSQA, "nq": NQ, "prism_first": OPENS, "prism_next": GOES_ON}
each_record = pytest.mark.parametrize("name", RECORDS)


def row_of(record, index=7, **changes):
    row = TASK.row_type.model_validate({"index": index, **record, **changes})
    TASK.check(row)
    return row


def episode_of(row, text, feedback=None):
    return Episode({"policy": [*TASK.prompt(row, feedback), {"role": "assistant", "content": text}]})


def verdict_of(row, text, judge, task=TASK):
    return asyncio.run(task.judge(row, episode_of(row, text), judge))


class Fixed:
    """Stands where a judge stands, without a network, and always says the same."""

    def __init__(self, human_likeness=1.0, outcome="refused"):
        self.answers = {
            HumanLikeness: {"human_likeness": human_likeness, "critique": "Type less."},
            IntentAdherence: {"outcome": outcome, "critique": "Insist."},
        }

    async def ask(self, schema, instructions, data, **other):
        return schema.model_validate({"reasoning": "?", **self.answers[schema]})


def nobody(request):
    raise AssertionError("a rule needs no judge")
