"""The sequences of a session: those that are trained, in every context, and those that are not, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ditto.batch.sequence_record import SequenceRecord
from ditto.objectives.spec import Kind
from ditto.rollout.token_seat import TokenSeat
from soul.session import Attempt, Session

TeacherPrompts = Mapping[tuple[str, int], tuple[int, ...]]  # seat and number of its sequence -> the draft's prompt


def session_sequences(
    session: Session, kinds: Sequence[Kind], prompt: str, name: str, teacher_prompts: TeacherPrompts
) -> list[SequenceRecord]:
    """Every sequence of the session, kind by kind; first those kinds that are trained.

    Args:
        kinds: the kinds that the objective trains. An episode of none of them is listed once.
        prompt, name: ids of the prompt's group and of the session.
        teacher_prompts: with the feedback in them, where a teacher reads it.
    """
    others: list[Kind] = [] if "draft" in kinds else ["draft"]
    if set(kinds) <= {"draft"}:
        others.append("refined_feedback")
    draft, refined = (
        each.verdict.reward if each and each.verdict else None for each in (session.draft, session.refined)
    )
    found: list[SequenceRecord] = []
    for kind in (*kinds, *others):
        attempt = session.draft if kind == "draft" else session.refined
        if attempt is None:
            continue
        masked = "no verdict" if not attempt.valid else "not in the objective" if kind in others else None
        for seat, number, sequence in seat_sequences(attempt):
            found.append(
                replace(
                    sequence,
                    kind=kind,
                    prompt=prompt,
                    session=name,
                    draft_reward=draft,
                    refined_reward=refined,
                    teacher_prompt=teacher_prompts.get((seat, number), ()) if kind == "draft" else (),
                    task=session.task,
                    place=len(found),
                    seat=seat,
                    masked=masked,
                    prompt_ids=sequence.prompt_ids if kind == "refined_feedback" else sequence.base_prompt_ids,
                )
            )
    return found


def seat_sequences(attempt: Attempt) -> Iterator[tuple[str, int, SequenceRecord]]:
    """The sequences of an episode, seat by seat: the seat, the number among its sequences, the sequence."""
    for name, seat in attempt.players.seats.items():
        assert isinstance(seat, TokenSeat)
        for number, sequence in enumerate(seat.sequences):
            yield name, number, sequence


async def teacher_prompts(session: Session, longest: int) -> dict[tuple[str, int], tuple[int, ...]]:
    """The prompts of the draft's sequences with the feedback in them.

    A sequence whose prompt would be too long, or does not begin with its seat's instructions, is missing.
    """
    prompts: dict[tuple[str, int], tuple[int, ...]] = {}
    for name, number, sequence in seat_sequences(session.draft) if session.contexts else ():
        if name not in session.contexts:
            continue
        seat = session.draft.players.seats[name]
        assert isinstance(seat, TokenSeat)
        messages = session.contexts[name].applied_to(sequence.messages[: sequence.prefix])
        ids = await seat.render(messages) if messages else []
        if 0 < len(ids) <= longest:
            prompts[name, number] = tuple(ids)
    return prompts
