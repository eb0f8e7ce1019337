"""From the records of a step to what its loss needs: an advantage and the weight of a token, for every row.

All valid episodes of the step are counted, whether or not the objective trains sequences of them. Weights are computed
mini-batch by mini-batch, because every mini-batch is one optimizer update.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ditto.batch.sequence_record import RowLoss, SequenceRecord
from ditto.objectives.advantages import Episode, best_refined, part_advantages
from ditto.objectives.loss_weights import row_weights
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Objective


def plan_losses(
    records: Sequence[SequenceRecord],
    mini_batch: Sequence[int],
    objective: Objective,
    options: ObjectiveOptions,
    loss_agg_mode: str,
    loss_scale_factor: float = 1.0,
) -> list[SequenceRecord]:
    """The same rows, each with its `loss`.

    Args:
        records: of every row.
        mini_batch: the number of each row's mini-batch.
        loss_agg_mode, loss_scale_factor: verl's, of `actor`.
    """
    episodes = list(_episodes(records))
    if objective.refined == "best":
        episodes = best_refined(episodes)
    losses = [RowLoss(teacher=_expert(record, objective, options)) for record in records]
    trained = {
        part.name: [
            row
            for row in _valid_rows(records, part.kinds, set(episodes))
            if not part.distils or records[row].teacher_prompt or losses[row].teacher >= 0
        ]
        for part in objective.parts
    }
    for part in objective.parts:
        rows, shared = trained[part.name], set(part.average_over or part.kinds)
        averaged = rows
        if not part.distils:
            averaged = [row for row in sorted(set().union(*trained.values())) if records[row].kind in shared]
        weights, factor = (
            _weights(records, averaged, mini_batch, loss_agg_mode, loss_scale_factor),
            options.weight(part),
        )
        if part.distils:
            for row in rows:
                losses[row] = losses[row]._replace(distill_weight=factor * weights.get(row, 0.0))
            continue
        episode_of, number = {row: _episode(records[row]) for row in rows}, float(objective.policy_parts.index(part))
        advantages = part_advantages(part, list(dict.fromkeys(episode_of.values())), episodes, options)
        for row in rows:
            losses[row] = losses[row]._replace(
                part=number, advantage=advantages[episode_of[row]], weight=factor * weights.get(row, 0.0)
            )
    planned = [replace(record, loss=loss) for record, loss in zip(records, losses, strict=True)]
    return with_means(planned, mini_batch, loss_agg_mode, loss_scale_factor)


def with_means(
    records: Sequence[SequenceRecord], mini_batch: Sequence[int], loss_agg_mode: str, loss_scale_factor: float
) -> list[SequenceRecord]:
    """The same rows, with `share` and `mean` over these rows alone: those that are computed."""
    of_part: defaultdict[tuple[int, float], int] = defaultdict(int)
    for number, record in zip(mini_batch, records, strict=True):
        of_part[number, record.loss.part] += record.tokens
    trained = [row for row, each in enumerate(records) if each.loss.part >= 0 or each.loss.distill_weight]
    means = _weights(records, trained, mini_batch, loss_agg_mode, loss_scale_factor)

    def measured(row: int) -> RowLoss:
        loss = records[row].loss
        share = 1.0 / max(of_part[mini_batch[row], loss.part], 1) if loss.part >= 0 else 0.0
        return loss._replace(share=share, mean=means.get(row, 0.0))

    return [replace(record, loss=measured(row)) for row, record in enumerate(records)]


def _weights(
    records: Sequence[SequenceRecord], rows: Sequence[int], mini_batch: Sequence[int], mode: str, scale: float
) -> dict[int, float]:
    """The weight of a token of each of these rows in the average over those of its mini-batch."""
    tokens = [record.tokens for record in records]
    together: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        together[mini_batch[row]].append(row)
    return {
        row: weight
        for members in together.values()
        for row, weight in row_weights(tokens, members, mode, scale).items()
    }


def _episode(record: SequenceRecord) -> Episode:
    return Episode(record.prompt, record.session, record.refined, record.reward)


def _episodes(records: Sequence[SequenceRecord]) -> Iterator[Episode]:
    """Every valid episode of the step once, whether or not a sequence of it is in the batch."""
    for record in {record.session: record for record in records if record.session}.values():
        for refined, reward in ((False, record.draft_reward), (True, record.refined_reward)):
            if reward is not None:
                yield Episode(record.prompt, record.session, refined, reward)


def _valid_rows(records: Sequence[SequenceRecord], kinds: Sequence[str], episodes: set[Episode]) -> Iterator[int]:
    """The valid rows of these kinds whose episode counts."""
    for row, record in enumerate(records):
        if record.valid and record.kind in kinds and _episode(record) in episodes:
            yield row


def _expert(record: SequenceRecord, objective: Objective, options: ObjectiveOptions) -> int:
    """The number of the checkpoint that teaches the sequence; -1: none does."""
    if objective.teacher != "experts" or record.kind != "draft":
        return -1
    number = options.distill.number_of(record.task)
    return -1 if number is None else number
