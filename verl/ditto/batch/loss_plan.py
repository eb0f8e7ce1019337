"""From the records of a step to what its loss needs: an advantage and the weight of a token, for every row.

All valid episodes of the step are counted, whether or not the objective trains sequences of them. Weights are computed
mini-batch by mini-batch, because every mini-batch is one optimizer update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from ditto.batch.sequence_record import SequenceRecord
from ditto.objectives.advantages import Episode, best_refined, part_advantages
from ditto.objectives.loss_weights import row_weights
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Objective, Part

T = TypeVar("T")


class RowTerms(NamedTuple):
    """What the loss reads of a row besides its tokens; the values of a row that nothing trains.

    Attributes:
        part: number of its policy part; -1: none.
        share: 1 / tokens of that part in the mini-batch, for metrics.
        mean: what one of its tokens weighs in an average over all valid sequences.
    """

    part: float = -1.0
    share: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True)
class LossPlan:
    """What the loss needs of every row; 0 for invalid sequences and padding.

    Attributes:
        advantages, rewards: of the sequence.
        weights, distill_weights: what one of its sampled tokens weighs in its policy part and in the distillation.
        advantage_of: session -> kind -> advantage, for the traces.
        teachers: number of the checkpoint that teaches the row (`DistillOptions`); -1: none does.
    """

    advantages: list[float]
    rewards: list[float]
    weights: list[float]
    distill_weights: list[float]
    terms: list[RowTerms]
    advantage_of: dict[str, dict[str, float]]
    teachers: list[int]

    def learns(self, row: int) -> bool:
        """Whether the row moves the policy: it is distilled, or has an advantage. KL and entropy terms aside."""
        return self.distill_weights[row] != 0 or self.weights[row] * self.advantages[row] != 0

    def over_these(self, tokens: Sequence[int], mini_batch: Sequence[int], mode: str, scale: float) -> LossPlan:
        """The same plan, with metrics as means over these rows alone: those that are computed.

        Args:
            mode, scale: verl's `loss_agg_mode` and `loss_scale_factor`.
        """
        of_part: defaultdict[tuple[int, float], int] = defaultdict(int)
        trained: defaultdict[int, list[int]] = defaultdict(list)
        for row, (number, terms, count) in enumerate(zip(mini_batch, self.terms, tokens, strict=True)):
            of_part[number, terms.part] += count
            if terms.mean:
                trained[number].append(row)
        means: dict[int, float] = {}
        for rows in trained.values():
            means |= row_weights(tokens, rows, mode, scale)
        shared = [
            terms._replace(share=1.0 / max(of_part[number, terms.part], 1), mean=means.get(row, 0.0))
            for row, (number, terms) in enumerate(zip(mini_batch, self.terms, strict=True))
        ]
        return replace(self, terms=shared)

    def select(self, rows: Sequence[int | None]) -> LossPlan:
        """The plan of these rows, in this order; None is a padding row."""

        def chosen(values: Sequence[T], padding: T) -> list[T]:
            return [padding if row is None else values[row] for row in rows]

        return LossPlan(
            chosen(self.advantages, 0.0),
            chosen(self.rewards, 0.0),
            chosen(self.weights, 0.0),
            chosen(self.distill_weights, 0.0),
            chosen(self.terms, RowTerms()),
            self.advantage_of,
            chosen(self.teachers, -1),
        )


def joined(plans: Sequence[LossPlan]) -> LossPlan:
    """The plan of the rows of several plans, one after another."""
    return LossPlan(
        [value for plan in plans for value in plan.advantages],
        [value for plan in plans for value in plan.rewards],
        [value for plan in plans for value in plan.weights],
        [value for plan in plans for value in plan.distill_weights],
        [value for plan in plans for value in plan.terms],
        {session: advantages for plan in plans for session, advantages in plan.advantage_of.items()},
        [value for plan in plans for value in plan.teachers],
    )


def plan_losses(
    records: Sequence[SequenceRecord],
    mini_batch: Sequence[int],
    objective: Objective,
    options: ObjectiveOptions,
    loss_agg_mode: str,
    loss_scale_factor: float = 1.0,
) -> LossPlan:
    """Advantages and weights of all rows.

    Args:
        records: of every row.
        mini_batch: the number of each row's mini-batch.
        loss_agg_mode, loss_scale_factor: verl's, of `actor`.
    """
    episodes = list(_episodes(records))
    if objective.refined == "best":
        episodes = best_refined(episodes)
    teachers = [_expert(record, options) if objective.teacher == "experts" else -1 for record in records]
    rows: dict[str, list[int]] = {
        part.name: list(_trained(part, records, set(episodes), teachers)) for part in objective.parts
    }
    count = len(records)
    advantages, advantage_of = [0.0] * count, dict[str, dict[str, float]]()
    for part in objective.policy_parts:
        members = [_episode(records[i]) for i in rows[part.name]]
        values = part_advantages(part, list(dict.fromkeys(members)), episodes, options)
        for i, episode in zip(rows[part.name], members, strict=True):
            advantages[i] = values[episode]
            advantage_of.setdefault(episode.session, {})[records[i].kind] = values[episode]
    rewards, terms = [record.reward for record in records], [RowTerms()] * count
    plan = LossPlan(advantages, rewards, [0.0] * count, [0.0] * count, terms, advantage_of, teachers)
    weigh = partial(row_weights, [r.tokens for r in records], mode=loss_agg_mode, scale=loss_scale_factor)
    for number in sorted(set(mini_batch)):
        together = {i for i, of_row in enumerate(mini_batch) if of_row == number}
        _weigh(plan, together, rows, records, objective, options, weigh)
    return plan


def _weigh(
    plan: LossPlan,
    mini_batch: set[int],
    rows: dict[str, list[int]],
    records: Sequence[SequenceRecord],
    objective: Objective,
    options: ObjectiveOptions,
    weigh: Callable[..., dict[int, float]],
) -> None:
    """Fill in the weights of one mini-batch's rows."""
    trained = {i for members in rows.values() for i in members if i in mini_batch}
    mean = weigh(members=sorted(trained))
    for part in objective.parts:
        members = [i for i in rows[part.name] if i in mini_batch]
        shared = set(part.average_over or part.kinds)
        divisor = members if part.distils else [i for i in sorted(trained) if records[i].kind in shared]
        weights = weigh(members=divisor)
        weight = options.weight(part)
        if part.distils:
            for i in members:
                plan.distill_weights[i] = weight * weights.get(i, 0.0)
            continue
        number = float(objective.policy_parts.index(part))
        share = 1.0 / max(sum(records[i].tokens for i in members), 1)
        for i in members:
            plan.weights[i] = weight * weights.get(i, 0.0)
            plan.terms[i] = RowTerms(number, share)
    for i in trained:
        plan.terms[i] = plan.terms[i]._replace(mean=mean.get(i, 0.0))


def _episode(record: SequenceRecord) -> Episode:
    return Episode(record.prompt, record.session, record.refined, record.reward)


def _episodes(records: Sequence[SequenceRecord]) -> Iterator[Episode]:
    """Every valid episode of the step once, whether or not a sequence of it is in the batch."""
    for record in {record.session: record for record in records if record.session}.values():
        for refined, reward in ((False, record.draft_reward), (True, record.refined_reward)):
            if reward is not None:
                yield Episode(record.prompt, record.session, refined, reward)


def _expert(record: SequenceRecord, options: ObjectiveOptions) -> int:
    """The number of the checkpoint that teaches the sequence; -1: none does."""
    number = options.distill.number_of(record.task)
    return -1 if number is None or record.kind != "draft" else number


def _trained(
    part: Part, records: Sequence[SequenceRecord], episodes: set[Episode], teachers: Sequence[int]
) -> Iterator[int]:
    """The rows that a part trains."""
    for i, record in enumerate(records):
        if record.valid and record.kind in part.kinds and _episode(record) in episodes:
            if not part.distils or record.teacher_prompt or teachers[i] >= 0:
                yield i
