"""All sequences of a session: those that are trained, in every context, and those that are not, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal

from ditto.objectives.spec import Kind
from ditto.rollout.token_seat import TokenSeat, TokenSequence
from soul.record import SequenceSummary
from soul.session import Attempt, Session


@dataclass(frozen=True)
class SessionSequence:
    """A sequence of an episode, in one context.

    Attributes:
        kind: as which it is trained, or would be.
        episode: which of the session's two attempts it belongs to; `attempt` is that attempt.
        seat: the seat that sampled it.
        masked: why it is not trained, as far as the session knows; None if the objective may train it.
    """

    kind: Kind
    episode: Literal["draft", "refined"]
    attempt: Attempt
    seat: str
    tokens: TokenSequence
    masked: str | None

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt in the context that is trained."""
        return self.tokens.prompt_ids if self.kind == "refined_feedback" else self.tokens.base_prompt_ids

    def summary(self) -> SequenceSummary:
        """What the trace keeps of it."""
        sampled = sum(self.tokens.response_mask)
        known = sampled > 0 and self.tokens.has_log_probs
        return SequenceSummary(
            attempt=self.episode,
            seat=self.seat,
            kind=self.kind,
            prompt_tokens=len(self.prompt_ids),
            response_tokens=sampled,
            turn_times=self.tokens.turn_times,
            logp_sampled=sum(compress(self.tokens.response_logprobs, self.tokens.response_mask)) / sampled
            if known
            else None,
            masked=self.masked,
        )


def token_sequences(attempt: Attempt) -> Iterator[tuple[str, TokenSequence]]:
    """The sequences of an episode with their seats, seat by seat."""
    for name, seat in attempt.players.seats.items():
        assert isinstance(seat, TokenSeat)
        for sequence in seat.sequences:
            yield name, sequence


def session_sequences(session: Session, kinds: Sequence[Kind]) -> list[SessionSequence]:
    """Every sequence of the session, kind by kind; first those kinds that are trained.

    Args:
        kinds: the kinds that the objective trains. An episode of none of them is listed once.
    """
    others: list[Kind] = [] if "draft" in kinds else ["draft"]
    if set(kinds) <= {"draft"}:
        others.append("refined_feedback")
    found = []
    for kind in (*kinds, *others):
        attempt = session.draft if kind == "draft" else session.refined
        if attempt is None:
            continue
        masked = "no verdict" if not attempt.valid else "not in the objective" if kind in others else None
        episode: Literal["draft", "refined"] = "draft" if kind == "draft" else "refined"
        found += [SessionSequence(kind, episode, attempt, *each, masked) for each in token_sequences(attempt)]
    return found
