"""Rules that read the demo's stories and write critiques, and an OFFLINE STAND-IN for a judge that answers with them.

`read_scene` finds where the thing of a story was at first and where it really is. The warm start uses it to imitate
hasty people. `critique` explains which step of an attempt failed, and names people but never a place or a letter.

The demo must run without a key and without a network, so `server` replaces an API model. It answers two requests: the
one that one-turn tasks send for a critique (`soul.one_turn.OneTurnTask.feedback`), and the connection test
(`soul.judge.Judge.check`). It refuses all others with a 400 and the reason. It gives no scores: tasks score by rule.
"""

import re
from typing import Literal, NamedTuple

from soul.answers.extraction import names_given, tagged_answer, tagged_letter
from soul.examples.endpoint import schema_of
from soul.one_turn import parse_options
from soul.testing import ChatRequest, FakeOpenAI, Json, Reply

MODEL = "offline-stand-in-rules"
Slip = Literal["none", "form", "truth", "first", "other"]

_TASK = re.compile(
    r"\nStory:\n(?P<story>.*?)\n\n(?:.*\n\n)?Question: (?P<question>.*?)\n(?:Choices|Places to choose from): "
    r"(?P<choices>.*?)\n\n",
    re.DOTALL,
)


class Scene(NamedTuple):
    """The first and the real place of the thing of a one-chapter story."""

    first: str
    truth: str


def read_scene(story: str) -> Scene:
    """The places of the thing that the story begins with."""
    first, *moves = re.findall(r"(?:The \w+ is in|moved the \w+ to) the (\w+)\.", story)
    return Scene(first, moves[-1] if moves else first)


def asked_about(question: str) -> list[str]:
    """The people whose thoughts a question is about, outermost first; none for "Where is the tomato really?"."""
    return re.findall(r"(?:does|thinks?|will) ([A-Z]\w+)", question)


def slip(story: str, choices: str, correct_answer: str, attempt: str) -> Slip:
    """Return the mistake of an attempt: its form, the true place for the believed one, the first place, or another."""
    place = _place(choices, attempt)
    scene = read_scene(story)
    if place is None:
        return "form"
    if place == correct_answer:
        return "none"
    if place == scene.truth:
        return "truth"
    return "first" if place == scene.first else "other"


def _place(choices: str, attempt: str) -> str | None:
    """The place that an attempt names, by letter if the choices have letters; None if it names none, or several."""
    if options := parse_options(choices):
        return options.get(tagged_letter(attempt, options) or "")
    places = names_given(tagged_answer(attempt) or "", choices.split(", "))
    return places.pop() if len(places) == 1 else None


def critique(task: str, correct_answer: str, attempt: str) -> str:
    """Two sentences on an attempt at a rendered prompt (HiToM's or ParaToMi's), without naming a place or a letter.

    Args:
        task: the user message of the draft.
        correct_answer: the text of the right option. It selects the critique and never appears in it.
        attempt: the policy's answer.
    """
    parts = _TASK.search(task)
    if parts is None:
        raise ValueError("the task holds no 'Story: ... Question: ... Choices: ...', with letters or with places")
    people = asked_about(parts["question"])
    kind = slip(parts["story"], parts["choices"], correct_answer, attempt)
    if kind == "form":
        return "Your reply did not end in the form asked for. Decide who saw what, then close with that form."
    return _about_belief(kind, people) if people else _about_truth(kind)


def _about_belief(kind: Slip, people: list[str]) -> str:
    who = " and ".join(people)
    saw = f"{who} saw last" if len(people) == 1 else f"{who} saw together last"
    if kind == "none":
        return f"You kept to what {saw}. Keep doing so."
    if kind == "truth":
        return f"You said where the thing is in truth. {people[-1]} had left before it was moved: go by what {saw}."
    if kind == "first":
        return f"You said where the thing was at first. It was moved before {people[-1]} left: go by what {saw}."
    return f"You lost track of who was there at which move. Read it line by line: go by what {saw}."


def _about_truth(kind: Slip) -> str:
    if kind == "none":
        return "You followed the thing to its last move. Keep doing so."
    return "You did not follow the thing to the end. It was moved later on: go by its last move."


def reply(request: ChatRequest) -> Reply:
    """The answer to a chat request; of an exception, `FakeOpenAI` makes a 400 with the reason."""
    wanted = set(schema_of(request)["properties"])
    if wanted == {"ready"}:
        return Json({"ready": True})
    if wanted != {"critique"}:
        raise ValueError(f"the offline stand-in only writes critiques; asked for the fields {sorted(wanted)}")
    data = request.data
    return Json({"critique": critique(data["task"], data["correct_answer"], data["attempt"])})


def server() -> FakeOpenAI:
    """The stand-in; it listens on a free port of 127.0.0.1 inside a `with` block."""
    return FakeOpenAI(reply, MODEL)
