"""OFFLINE STAND-IN for a judge: an OpenAI-compatible server that writes critiques by rule, with no model behind it.

The demo must run without a key and without a network, so this server replaces an API model. It answers two requests:
the one that one-turn tasks send for a critique (`soul.one_turn.OneTurnTask.feedback`), and the connection test
(`soul.judge.Judge.check`). It refuses all others with a 400 and the reason; it never invents an answer. The critiques
come from `recipe.demo.coach`. It gives no scores: the task scores HiToM by rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recipe.demo import coach
from soul.judge.call.untrusted import data_of
from soul.testing import BadRequest, ChatRequest, FakeOpenAI, Json, Reply

MODEL = "offline-stand-in-rules"


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object that answers a chat request.

    Raises:
        ValueError: the stand-in has no rule for this request.
    """
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    wanted = set(schema.get("properties", {}))
    if wanted == {"ready"}:
        return {"ready": True}
    if wanted != {"critique"}:
        raise ValueError(f"the offline stand-in only writes critiques; asked for the fields {sorted(wanted)}")
    data = data_of(next((m["content"] for m in body.get("messages", []) if m["role"] == "user"), ""))
    missing = {"task", "correct_answer", "attempt"} - set(data)
    if missing:
        raise ValueError(f"the data lacks {sorted(missing)}")
    return {"critique": coach.critique(str(data["task"]), str(data["correct_answer"]), str(data["attempt"]))}


def reply(request: ChatRequest) -> Reply:
    """The answer to a chat request, or a 400 with the reason."""
    try:
        return Json(answer(request.body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return BadRequest(f"{type(error).__name__}: {error}")


def server() -> FakeOpenAI:
    """The stand-in; it listens on a free port of 127.0.0.1 inside a `with` block."""
    return FakeOpenAI(reply, MODEL)
