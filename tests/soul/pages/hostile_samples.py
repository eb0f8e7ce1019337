"""Samples for a report: enough for several pages, and one whose every text tries to be more than text."""

from soul.record import OpinionRecord
from tests.soul.evaluate.finished_samples import TOM, numbered, sample

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> \u2028 & \" ' \u202eend \ud83d."
MINE = "my set/ü?"


def lines():
    """267 samples of four sets: groups, failures of all kinds, a set of one's own, texts to search, and one hostile."""
    found = []
    for name, rewards in ((TOM, [1.0, 0.0, None, 0.5] * 65), ("sotopia", [0.3, -0.1, None]), ("fantom", [None])):
        of_set = numbered(rewards, name)
        for line in of_set:
            line.groups = {"order": str(line.number % 12)} if name == TOM else {}
        found += of_set
    found += numbered([0.25, 0.75], MINE, task=TOM)
    found[1].draft.critique = "Look for the zebra-crossing."
    found[3].record = {"story": "Where the Unicorn slept", "numbers": [1, 2]}
    hostile = sample(1.0, 260, answer=HOSTILE, groups={HOSTILE: HOSTILE}, metrics={HOSTILE: 1.0}, contentless=True)
    hostile.draft.seats = {
        HOSTILE: [
            {"role": "system", "content": HOSTILE},
            {"role": "user", "content": "long " * 1000},
            {"role": "assistant", "content": HOSTILE},
        ],
        "second": [{"role": "assistant", "content": ""}],
    }
    hostile.draft.critique = hostile.draft.ended = HOSTILE
    hostile.draft.jury = [OpinionRecord(judge=HOSTILE, reward=1.0, metrics={HOSTILE: 1})]
    hostile.record = {HOSTILE: HOSTILE}
    return [*found, hostile]
