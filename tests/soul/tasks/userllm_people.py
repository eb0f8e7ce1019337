"""Messages of real people, with intents written for them, and a few conversations that go on.

The openings stay in PRISM's table: here they are named by cluster and place. PRISM's later turns are in no file that is
here, so those conversations are made up.
"""

import ast
import csv

from data import userllm
from soul.tasks.userllm import END
from tests.soul.samples import DATA

FOLDER = DATA / "userllm"
TABLE = FOLDER / "prism_opening_prompt_clusters.csv"
INTENTS = {  # (cluster, place) -> what the person is after
    ("-1", 1): "Find ways to manage money when earnings are small.",
    ("-1", 2): "Get guidance on handling difficult colleagues.",
    ("19", 1): "Discuss tolerance of bad conduct among people who are close.",
    ("19", 2): "Explore how to stand up for oneself.",
    ("19", 4): "Hear an opinion on solitude in later life.",
    ("14", 1): "Chat about favourite shows.",
    ("14", 3): "Compare two famous science fiction series.",
    ("18", 0): "Vent about financial hardship.",
    ("18", 3): "Seek support during unemployment.",
    ("6", 0): "Clarify how faith and personal belief relate.",
    ("6", 3): "Learn the basics of a major religion.",
    ("16", 0): "Plan a trip to southern Spain.",
    ("16", 2): "Receive travel recommendations for South America.",
    ("7", 1): "Weigh up raising poultry at home.",
    ("12", 2): "Debate a policy against hardship.",
    ("20", 0): "Express a view on newcomers to the nation.",
    ("4", 3): "Explore the ethics of taking a life.",
    ("9", 0): "Choose footwear despite joint trouble.",
    ("10", 4): "Check current conditions outdoors in a Canadian place.",
    ("2", 4): "Understand the causes of a historical conflict.",
}
TALKS = (  # intent, the conversation so far, what the person wrote next, whether it was the last time
    (
        "Learn about caring for pets.",
        "User: my cat wont eat the new food\nAssistant: Mix a little of it into what she knows, and add more each day.",
        "ok ill try half half. what if she picks out only the old bits??",
        False,
    ),
    (
        "Get help with cooking.",
        "User: can i freeze mashed potato\nAssistant: Yes. Press it flat in a bag, and use it within two months.",
        "perfect thanks",
        True,
    ),
    (
        "Explore views on politics.",
        "User: should voting be compulsory\nAssistant: Turnout rises where it is, but some call it a burden.",
        "but isnt a fine for staying home a bit much? my gran can hardly walk",
        False,
    ),
    (
        "Discuss managing stress.",
        "User: i feel burnt out lately\nAssistant: Rest helps. Which part of your day drains you most?",
        "mornings. three kids and the bus is always late",
        False,
    ),
    (
        "Understand world history.",
        "User: why did rome fall\nAssistant: There were many causes: invasions, inflation, civil wars and plague.",
        "cool, that clears it up",
        True,
    ),
    (
        "Find entertainment for the evening.",
        "User: any good heist films\nAssistant: You could watch Heat, Rififi or Inside Man.",
        "seen the first one, whats rififi about",
        False,
    ),
    (
        "Hear an opinion on relationships.",
        "User: is it ok to date a coworker\nAssistant: It can be, if neither of you reports to the other.",
        "hmm she is kind of my boss so no then. thx",
        True,
    ),
    (
        "Improve physical fitness.",
        "User: knees hurt after jogging\nAssistant: Try softer ground and shorter steps. See a doctor if it lasts.",
        "its only the left one tho, going downhill",
        False,
    ),
)


def openings():
    """(intent, message) of PRISM's people."""
    with TABLE.open(newline="", encoding="utf-8") as lines:
        texts = {raw["cluster_id"]: ast.literal_eval(raw["top_texts"]) for raw in csv.DictReader(lines)}
    return [(intent, texts[cluster][place]) for (cluster, place), intent in INTENTS.items()]


def spoken_by_people(per_source=20):
    """(record, what the person wrote) for rows of all three sources; people end a conversation with the end token."""
    files = sorted([*FOLDER.glob("csqa*.jsonl"), *FOLDER.glob("NQ*.jsonl")])
    asked = [(record, record["question"]) for record in userllm.convert(files, per_source=per_source).records]
    opened = [({"source": "prism", "intent": intent, "is_last_turn": False}, said) for intent, said in openings()]
    gone_on = [
        (
            {"source": "prism", "intent": intent, "conversation_history": history, "is_last_turn": last},
            f"{said} {END}" if last else said,
        )
        for intent, history, said, last in TALKS
    ]
    return [({**record, "index": i}, said) for i, (record, said) in enumerate([*asked, *opened, *gone_on])]
