"""Experts over HTTP for the tests: they play the examples' rows, well in some samples and badly in others."""

from soul import examples
from soul.examples.endpoint import answer
from soul.testing import Text

ROWS = 6


class Experts:
    """The script of a `FakeOpenAI`: models named `expert-...` play, everybody else is a judge by rule.

    Whether a sample is good depends on its seed alone, so that a test can say which are.
    """

    def __init__(self, *tasks, rows=ROWS, good=lambda seed: seed % 3 == 0, varied=False):
        self.good = good
        self.varied = varied  # no two samples say the same
        self.rows = [(examples.load(task), examples.load(task).row(number)) for task in tasks for number in range(rows)]
        self.asked = []

    def __call__(self, request):
        if not request.body["model"].startswith("expert"):
            return answer(request)
        if len(request.messages) == 1 and request.messages[0]["content"] == "Say hello.":
            return Text("hello")
        self.asked.append((request.messages, request.body["seed"]))
        example, row = next((e, r) for e, r in self.rows if _is_about(e, r, request.messages))
        style = "oracle" if self.good(request.body["seed"]) else "contrarian"
        said = example.player(style, row)(request.messages)
        return Text(f"Thought {request.body['seed']}. {said}" if self.varied else said)


def _is_about(example, row, messages):
    if example.name == "coser":  # one seat a character
        seats = [example.task._instructions(row, name, None) for name in row.cast]
        return messages[0] in seats
    return messages[0] == example.task.prompt(row)[0]
