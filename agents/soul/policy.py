"""The model under training or test, as a participant in a conversation.

A `Seat` is a place in an episode that the policy plays. Its conversation is append-only: every call of `say` gets the
whole conversation so far, which extends the previous one. Training uses a seat that keeps the sampled token ids
(`ditto.rollout.agent_loop`); evaluation uses `OpenAISeat`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from soul.errors import JudgeFailure, PolicyFailure
from soul.judge import ChatModel, Gateway, Judge
from soul.message import Escape, Message

# Most tokens of one turn in a dialogue, in training (data.max_turn_length) and of a checkpoint that we serve. A turn of
# a person has a tenth of it, and a model that repeats itself would use up the tokens of the whole episode.
TURN_TOKENS = 1024


class Seat(Protocol):
    """A place in an episode that the policy plays."""

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        """Let the policy speak.

        Args:
            messages: the conversation so far as this seat sees it, including the feedback.
            base: the same conversation without the feedback, if that differs. DITTO trains a refined answer in this
                context, so every message after the instructions must be the same in both.

        Returns:
            The policy's text, without special tokens.

        Raises:
            PolicyFailure: the policy gave no usable turn.
        """
        ...


@dataclass
class Players:
    """The participants of one episode: the policy's seats, created on first use, and the models around them."""

    new_seat: Callable[[str], Seat]
    seats: dict[str, Seat] = field(default_factory=dict)
    gateway: Gateway | None = None  # set by the driver
    bases: dict[str, list[Message]] = field(default_factory=dict)  # seat -> the last `base` that its `say` got
    feedback: Mapping[str, str] = field(default_factory=dict)  # further side -> its feedback (`Task.side_rows`)

    def policy(self, seat: str = "policy") -> Seat:
        """The policy in the seat with this name."""
        if seat not in self.seats:
            self.seats[seat] = self.new_seat(seat)
        return _DriversSeat(self.seats[seat], seat, self.bases)

    @property
    def partner(self) -> ChatModel:
        """The other side of a dialogue, if a model plays it."""
        return self._others().partner

    @property
    def environment(self) -> Judge:
        """The world around a dialogue: next speaker, narrator, tool. It can chat and fill in schemas."""
        return self._others().environment

    def _others(self) -> Gateway:
        if self.gateway is None:
            raise RuntimeError("these players have no partner and no environment: set `gateway`")
        return self.gateway


@dataclass(frozen=True)
class _DriversSeat:
    """A seat that remembers its base context for the session's record."""

    seat: Seat
    name: str
    bases: dict[str, list[Message]]

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        if base is not None:
            self.bases[self.name] = list(base)
        return await self.seat.say(messages, base)


@dataclass
class OpenAISeat:
    """The policy behind an OpenAI-compatible endpoint (evaluation of a checkpoint server or an API model).

    Attributes:
        seed: sent with every turn, so that the endpoint samples reproducibly; None: not sent.
        most_tokens: of one turn, if the endpoint's settings have no limit; None: no limit.
        escape: of a model that we serve, as in training; None: it reads the texts as they are.
    """

    model: ChatModel
    seed: int | None = None
    most_tokens: int | None = None
    escape: Escape | None = None

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        try:
            read = self.escape(list(messages)) if self.escape else messages
            return await self.model.say(read, self.seed, self.most_tokens)
        except JudgeFailure as error:
            raise PolicyFailure(error.cause, error.detail) from error
