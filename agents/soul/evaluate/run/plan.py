"""Estimate the calls by role, the tokens and the price of an evaluation, set by set, and print the plan.

Rows and calls are counted, and prompts are measured in characters. Lengths of answers are assumptions: the constants
below, which the plan prints. The time depends on speeds that only the run measures.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import Endpoint
from soul.judge.audit import biases, canaries
from soul.judge.load import JURY, Load, summed, total_cost
from soul.judge.preflight import has_key
from soul.table import Table
from soul.task import Task

CHARS_PER_TOKEN = 4
ANSWER_TOKENS = 300  # of an answer in a one-turn task
TURN_TOKENS = 80  # of one turn of a dialogue
VERDICT_TOKENS = 150  # of a judge's answer to one call
POLICY, JUDGE_TEST = "policy", "judge test"
WIDER = "a wider terminal shows them"
ROLES = (POLICY, "judge", "partner", "environment")
ASSUMED = (
    f"Assumptions: a token is {CHARS_PER_TOKEN} characters. The answer to a one-turn task has {ANSWER_TOKENS} tokens, "
    f"a turn of a dialogue {TURN_TOKENS}, a judge's verdict {VERDICT_TOKENS}. No model thinks, and no "
    "answer comes from a cache."
)


class SetPlan(NamedTuple):
    """The expected calls of one set: rows and samples that are still to run, and a load for each section and endpoint.

    Sections are "policy", the roles, `judge.by_task.<task>` and the members of a jury.
    """

    name: str
    rows: int
    samples: int
    loads: Sequence[Load]


class EvaluationPlan(NamedTuple):
    """The expected calls of an evaluation; `tests` are those of judges that are tested before the first sample."""

    sets: Sequence[SetPlan]
    tests: Sequence[Load]

    @property
    def loads(self) -> list[Load]:
        """The loads of all sets and of the tests, summed by section and endpoint."""
        loads = [*(load for plan in self.sets for load in plan.loads), *self.tests]
        return summed(loads, lambda load: (load.section, load.endpoint))


def plan(
    settings: EvaluationSettings, todo: Sequence[SampleRequest], tested: Mapping[Endpoint, bool] | None = None
) -> EvaluationPlan:
    """Estimate the calls of these samples.

    Args:
        tested: the judges that are tested before the first sample -> True if they are known (`judge_check.tested`).
    """
    by_set: dict[str, list[SampleRequest]] = defaultdict(list)
    for request in todo:
        by_set[request.set].append(request)
    sets = [_set_plan(settings, name, requests) for name, requests in by_set.items()]
    new = [(one.scenario, one.reply) for one in canaries.replies()]
    tests = []
    for endpoint, is_known in (tested or {}).items():
        sent = [*biases.REPLIES, *([] if is_known else new)]
        read = sum(len(f"{canaries.instructions(one)}{one.situation}{reply}") for one, reply in sent) / CHARS_PER_TOKEN
        tests.append(Load(JUDGE_TEST, endpoint, len(sent), read, len(sent) * VERDICT_TOKENS))
    return EvaluationPlan(sets, tests)


def sections_asked(settings: EvaluationSettings, task: Task[Any]) -> dict[str, float]:
    """Section -> calls of one episode of a task, without the policy's; of a rescored run only the judge's."""
    return {
        settings.gateway.section(role, task.name): calls
        for role, calls in task.calls_per_episode.items()
        if calls and (settings.source is None or role == "judge")
    }


def _set_plan(settings: EvaluationSettings, name: str, requests: Sequence[SampleRequest]) -> SetPlan:
    task, samples = requests[0].row.task, len(requests)
    rows = {request.row.number: request.row for request in requests}
    characters = [sum(len(message["content"]) for message in task.prompt(row.row)) for row in rows.values()]
    prompt = statistics.fmean(characters) / CHARS_PER_TOKEN
    instructions = statistics.fmean(map(len, task.prompts)) / CHARS_PER_TOKEN if task.prompts else 0.0
    turns = task.policy_turns
    # In a dialogue the other side speaks as often as the policy.
    turn, sides = (TURN_TOKENS, 2) if turns > 1 else (ANSWER_TOKENS, 1)
    episode = turns * turn * sides

    def load(section: str, endpoint: Endpoint, calls: float, read: float, answer: int) -> Load:
        return Load(section, endpoint, samples * calls, samples * read, samples * calls * answer)

    loads = []
    if settings.source is None:
        # Each turn reads the prompt and all turns before it: on average, half of the episode.
        read = turns * (prompt + (episode / 2 - turn if turns > 1 else 0.0))
        loads.append(load(POLICY, settings.policy, turns, read, turn))
    for section, calls in sections_asked(settings, task).items():
        endpoints = settings.gateway.asked(section)
        judging = section.startswith("judge")
        read = calls * (prompt + instructions + episode / (1 if judging else 2))
        for number, endpoint in enumerate(endpoints, start=1):
            member = section if len(endpoints) == 1 else f"{JURY}{number}"
            loads.append(load(member, endpoint, calls, read, VERDICT_TOKENS if judging else TURN_TOKENS))
    return SetPlan(name, len(rows), samples, loads)


def show(console: Console, settings: EvaluationSettings, plan: EvaluationPlan) -> None:
    """Print the plan."""
    samples = sum(one.samples for one in plan.sets)
    suite = f", suite {settings.suite}" if settings.suite else ""
    rows = f"{settings.limit} rows a set" if settings.limit else "all rows"
    title = f"Plan: {settings.policy.model} on {len(plan.sets)} sets{suite}, {rows}, {samples:,} samples to run"
    sums = ("tokens in", "tokens out", "price")
    head = ["set", "rows", "samples", "judge", *(f"{role}\ncalls" for role in ROLES), *sums]
    last = len(head) - 1
    view = Table(head, [set_cells(one) for one in plan.sets], words=frozenset({3}), optional=(last - 1, last - 2, 1, 2))
    console.print(view.fitting(console.width, WIDER).rich(title))
    head = ["role", "model", "key", "calls", *sums]
    lines = [_endpoint_cells(load) for load in plan.loads]
    view = Table(head, lines, words=frozenset({1, 2}), whole=frozenset({2}), optional=(5, 4))
    console.print(view.fitting(console.width, WIDER).rich("Endpoints"))
    for text in _sentences(settings, plan):
        console.print(text, markup=False, highlight=False)


def set_cells(plan: SetPlan) -> list[str]:
    """The line of a set."""
    judges = dict.fromkeys(load.endpoint.model for load in plan.loads if load.role == "judge")
    calls = [sum(load.calls for load in plan.loads if load.role == role) for role in ROLES]
    return [
        *(plan.name, f"{plan.rows:,}", f"{plan.samples:,}", " + ".join(judges) or "by rule"),
        *(f"{count:,.0f}" if count else "" for count in calls),
        f"{sum(load.tokens_in for load in plan.loads):,.0f}",
        f"{sum(load.tokens_out for load in plan.loads):,.0f}",
        _price(total_cost(plan.loads)),
    ]


def _endpoint_cells(load: Load) -> list[str]:
    endpoint = load.endpoint
    key = "none needed" if endpoint.api_key_env is None else endpoint.api_key_env
    counts = (f"{number:,.0f}" for number in (load.calls, load.tokens_in, load.tokens_out))
    section = "judge" if load.section == JUDGE_TEST else load.section
    price = _price(load.cost_usd) if endpoint.priced else f"set {section}.price_in, .price_out"
    return [load.section, endpoint.name, key + ("" if has_key(endpoint) else " NOT SET"), *counts, price]


def _sentences(settings: EvaluationSettings, plan: EvaluationPlan) -> list[str]:
    texts = []
    for load in plan.tests:
        calls = f"{load.calls:,.0f} calls before the first sample, {_price(load.cost_usd)}"
        texts.append(f"Test of the judge {load.endpoint.model} with known replies: {calls}.")
    unknown = [load.section for load in plan.loads if not load.endpoint.priced]
    rest = f", plus {', '.join(unknown)}, which have no prices set" if unknown else ""
    texts.append(f"Price: {_price(sum(load.cost_usd or 0.0 for load in plan.loads))}{rest}.")
    texts.append(ASSUMED)
    if settings.missing:
        texts.append(f"Skipped, because the file is missing: {', '.join(settings.missing)}.")
    return texts


def _price(dollars: float | None) -> str:
    return "unknown" if dollars is None else f"${dollars:,.2f}"
