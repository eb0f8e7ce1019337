"""Each sign of a known failure on sessions that show it, and on sessions that do not."""

from collections.abc import Sequence

import pytest

from ditto.run.diagnostics import assistant_turns, step_diagnostics
from soul.record import AttemptRecord, OpinionRecord, SessionRecord


def attempt(text: str, reward: float = 0.5, **metrics: float) -> AttemptRecord:
    seats = {"policy": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": text}]}
    return AttemptRecord.model_validate({"seats": seats, "reward": reward, "metrics": metrics or None})


def session(prompt: str, draft: str, refined: str = "", feedback: str = "", **metrics: float) -> SessionRecord:
    return SessionRecord(
        task="hitom",
        number=0,
        row=0,
        prompt=prompt,
        draft=attempt(draft, **metrics),
        feedback=feedback or None,
        refined=attempt(refined) if refined else None,
    )


def diversity_of(*groups: Sequence[str]) -> tuple[float, float]:
    traces = [session(f"p{i}", text) for i, texts in enumerate(groups) for text in texts]
    numbers = step_diagnostics(traces)
    return numbers["ditto/distinct_2"], numbers["ditto/self_bleu"]


def test_diversity_is_that_of_a_prompts_own_drafts() -> None:
    same, different = ["a b c d e"] * 2, ["a b c d e", "f g h i j"]
    assert diversity_of(same) == (0.5, 1.0)
    assert diversity_of(different) == (1.0, 0.0)
    assert diversity_of(same, different) == (0.75, 0.5)
    # The same answer to two prompts is no lack of diversity.
    assert diversity_of(different, different) == (1.0, 0.0)


def test_copying_is_what_comes_from_the_feedback_alone() -> None:
    feedback = "ask what the character saw last"
    copies = session("p", "it is here", "ask what the character saw last", feedback)
    assert step_diagnostics([copies])["ditto/share_copied"] == 1.0
    own = session("p", "it is here", "she saw it in the red box", feedback)
    assert step_diagnostics([own])["ditto/share_copied"] == 0.0
    already = session("p", feedback, feedback, feedback)
    assert step_diagnostics([already])["ditto/share_copied"] == 0.0


def test_the_gap_of_a_metric_is_over_sessions_with_both_verdicts() -> None:
    both = session("p", "a draft", "refined", secret=-4.0, warmth=1.0)
    assert both.refined is not None
    both.refined.metrics = {"secret": -1.0}
    again = both.model_copy(update={"refined": both.refined.model_copy(update={"metrics": {"secret": -4.0}})})
    numbers = step_diagnostics([both, again, session("p", "not refined", secret=9.0)])
    gaps = {name: value for name, value in numbers.items() if "secondary_gap" in name}
    assert gaps == {"ditto/secondary_gap/hitom/secret": 1.5}


def test_a_single_draft_and_an_empty_answer_have_no_diversity() -> None:
    assert step_diagnostics([session("p", "one draft")]) == {}
    assert step_diagnostics([session("p", "one", warmth=2.0)]) == {"ditto/secondary/hitom/warmth": 2.0}
    assert "ditto/distinct_2" not in step_diagnostics([session("p", ""), session("p", "")])


def test_the_error_of_the_reward_is_over_prompts() -> None:
    """Eight drafts of two prompts are two observations."""
    traces = [session(prompt, f"draft {i}") for prompt in "ab" for i in range(4)]
    for trace in traces:
        trace.draft.reward = float(trace.prompt == "a")
    assert step_diagnostics(traces)["ditto/reward_draft_error"] == pytest.approx(0.5**0.5 / 2**0.5)


def test_length_that_pays_is_counted_among_the_drafts_of_a_prompt() -> None:
    drafts = [("a", "x", 0.1), ("a", "x x", 0.2), ("a", "x x x", 0.3), ("b", "x", 0.9), ("b", "x x", 0.1)]
    traces = [session(prompt, text) for prompt, text, _ in [*drafts, ("c", "x", 0.0), ("c", "x", 0.5)]]
    for trace, reward in zip(traces, [*(one[2] for one in drafts), 0.0, 0.5], strict=True):
        trace.draft.reward = reward
    assert step_diagnostics(traces)["ditto/length_reward"] == pytest.approx((1 - 1) / 2)  # of c no length differs
    assert step_diagnostics(traces[:3])["ditto/length_reward"] == pytest.approx(1)


def test_the_canary_beside_the_judge() -> None:
    traces = [session("p", f"draft {i}") for i in range(4)]
    for trace, (reward, opinion) in zip(
        traces,
        [
            (0.9, OpinionRecord(judge="bird", reward=0.4)),
            (None, OpinionRecord(judge="bird", reward=0.2)),
            (0.5, OpinionRecord(judge="bird", failure="timeout")),
            (0.7, None),
        ],
        strict=True,
    ):
        trace.draft.reward, trace.draft.canary = reward, opinion
    for trace, refined in zip(traces, (0.5, 0.2, 0.9, 0.9), strict=True):  # better, no better, unknown twice
        trace.refined = session("p", "refined").draft
        trace.refined.canary = OpinionRecord(judge="bird", reward=refined)
    found = step_diagnostics(traces)
    assert found["feedback/helped_second_judge"] == 0.5
    numbers = {key: value for key, value in found.items() if "canary" in key}
    assert numbers == pytest.approx(
        {
            "ditto/canary/share": 0.75,
            "ditto/canary/reward_draft": 0.3,
            "ditto/canary/difference": 0.5,
            "ditto/canary/failed/timeout": 1 / 3,
        }
    )


def test_turns_of_an_assistant_are_counted() -> None:
    said = [
        "How can I help you today?",
        "I want 480 for it.",
        "Let me help you.",
        "My ai is called Ada.",
    ]
    traces = [session("p", text) for text in said]
    assert assistant_turns(traces) == {"share_assistant_turns": 0.5} and assistant_turns([]) == {}
