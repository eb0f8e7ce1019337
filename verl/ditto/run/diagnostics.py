"""Signs of the known ways in which training with feedback fails, from the sessions of a step alone.

A policy that distils itself can narrow (all drafts of a prompt alike), drift in style or length, or repeat the critic's
words instead of acting on them; one bad update can spoil in a step what took many to learn; a reward can rise while
what it does not weigh gets worse. Each of these has a number in `metrics.jsonl`; `alarms.py` watches them.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

from soul.drop_in.faults import PHRASES
from soul.metrics.lexical import words
from soul.metrics.ngram import bleu
from soul.record import AttemptRecord, SessionRecord

# Pairs compared by BLEU, which costs about 10 microseconds a word: half a second of a step at most.
PAIRS_PER_STEP, WORDS_PER_STEP = 400, 50_000


def policy_text(attempt: AttemptRecord) -> str:
    """Everything that the policy said in an episode."""
    conversations = (attempt.seats or {}).values()
    return "\n".join(m["content"] for messages in conversations for m in messages if m["role"] == "assistant")


def diversity(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """Differences between the drafts of a prompt.

    distinct_2: different pairs of neighbouring words over all such pairs, of a prompt's drafts together; self_bleu:
    mean BLEU of two drafts of a prompt (0 to 1). Both are means over prompts with at least two drafts.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for trace in traces:
        if trace.draft.valid and trace.prompt:
            groups[trace.prompt].append(policy_text(trace.draft))
    several = [texts for _, texts in sorted(groups.items()) if len(texts) > 1]
    bigrams = [[pair for text in texts for pair in _n_grams(words(text), 2)] for texts in several]
    shares = [len(set(of_prompt)) / len(of_prompt) for of_prompt in bigrams if of_prompt]
    numbers = {"ditto/distinct_2": statistics.fmean(shares)} if shares else {}
    if pairs := [pair for texts in several for pair in combinations(texts, 2)]:
        both = statistics.fmean(len(a.split()) + len(b.split()) for a, b in pairs)
        most = max(1, min(PAIRS_PER_STEP, int(WORDS_PER_STEP / max(both, 1.0))))
        pairs = pairs[:: -(-len(pairs) // most)]
        numbers["ditto/self_bleu"] = statistics.fmean(bleu(a, b) for a, b in pairs)
    return numbers


def length_reward(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The correlation (-1 to 1) of a draft's words with its reward, among the drafts of a prompt; mean over prompts."""
    groups: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for trace in traces:
        if trace.draft.reward is not None:
            groups[trace.prompt].append((len(policy_text(trace.draft).split()), trace.draft.reward))
    pairs = [tuple(zip(*group, strict=True)) for group in groups.values()]
    known = [statistics.correlation(*both) for both in pairs if all(len(set(values)) > 1 for values in both)]
    return {"ditto/length_reward": statistics.fmean(known)} if known else {}


def copied(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The share of the refined answers' runs of three words that stand in the feedback and not in the draft."""
    shares = []
    for trace in traces:
        if trace.feedback and trace.refined and trace.refined.valid:
            runs = _n_grams(words(policy_text(trace.refined)), 3)
            new = set(_n_grams(words(trace.feedback), 3)) - set(_n_grams(words(policy_text(trace.draft)), 3))
            if runs:
                shares.append(statistics.fmean(run in new for run in runs))
    return {"ditto/share_copied": statistics.fmean(shares)} if shares else {}


def secondary(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """Mean of every metric of the drafts' verdicts, by task, and by how much the refined verdict's is higher."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for trace in traces:
        refined = (trace.refined.metrics if trace.refined else None) or {}
        for name, value in (trace.draft.metrics or {}).items():
            values[f"ditto/secondary/{trace.task}/{name}"].append(value)
            if name in refined:
                values[f"ditto/secondary_gap/{trace.task}/{name}"].append(refined[name] - value)
    finite = {name: [value for value in of_name if math.isfinite(value)] for name, of_name in sorted(values.items())}
    return {name: statistics.fmean(of_name) for name, of_name in finite.items() if of_name}


def canary(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The second judge's opinion of some drafts: mean reward, by how much the judge's is higher, and failures; and the
    share of the sessions in which it prefers the refined answer, so that the feedback helps by another judge's scores.
    """
    asked = [(trace.draft, trace.draft.canary) for trace in traces if trace.draft.canary]
    if not asked:
        return {}
    numbers = {"ditto/canary/share": len(asked) / len(traces)}
    rewards = [(draft.reward, opinion.reward) for draft, opinion in asked if opinion.reward is not None]
    if rewards:
        numbers["ditto/canary/reward_draft"] = statistics.fmean(second for _, second in rewards)
    differences = [first - second for first, second in rewards if first is not None]
    if differences:
        numbers["ditto/canary/difference"] = statistics.fmean(differences)
    both = [[a.canary.reward if a.canary else None for a in trace.attempts] for trace in traces if trace.refined]
    helped = [refined > draft for draft, refined in both if draft is not None and refined is not None]
    if helped:
        numbers["feedback/helped_second_judge"] = statistics.fmean(helped)
    failed = Counter(opinion.failure for _, opinion in asked if opinion.failure)
    return numbers | {f"ditto/canary/failed/{cause}": count / len(asked) for cause, count in failed.items()}


def reward_error(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The standard error of the drafts' mean reward, over prompts: drafts of one prompt are not independent."""
    by_prompt: defaultdict[str, list[float]] = defaultdict(list)
    for trace in traces:
        if trace.draft.reward is not None:
            by_prompt[trace.prompt].append(trace.draft.reward)
    means = [statistics.fmean(rewards) for rewards in by_prompt.values()]
    return {"ditto/reward_draft_error": statistics.stdev(means) / math.sqrt(len(means))} if len(means) > 1 else {}


def assistant_turns(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The share of the drafts' turns with a phrase that only an assistant says, where several policies play."""
    seats = [messages for trace in traces for messages in (trace.draft.seats or {}).values()]
    turns = [message["content"] for messages in seats for message in messages if message["role"] == "assistant"]
    said = [PHRASES["assistant"].search(turn) is not None for turn in turns]
    return {"share_assistant_turns": statistics.fmean(said)} if said else {}


def _n_grams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def step_diagnostics(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The numbers of a step, from its sessions."""
    of_drafts = reward_error(traces) | length_reward(traces) | diversity(traces) | secondary(traces)
    return of_drafts | copied(traces) | canary(traces)
