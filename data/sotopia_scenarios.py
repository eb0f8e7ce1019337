"""New Sotopia environments whose two private goals conflict by construction, without a model.

    python -m data.sotopia_scenarios --count 300 --out environment_profiles.jsonl
    python -m data.sotopia_pairs convert environment_profiles.jsonl agent_profiles.jsonl relationship_profiles.jsonl \\
        --out FILE.parquet

These are not the paper's scenarios; mix them in if you want more than Sotopia-pi has. Three kinds, in the words of
Sotopia's own environments:

    bargain    a seller and a buyer, whose targets are a stated share of the price apart; there is room for a deal, and
               every dollar that one gains the other loses
    division   two people divide things whose points differ, so that nobody can have the best of all
    evening    two people choose one of three plans; the favourite of each is the last choice of the other

Each environment says in `conflict` what makes its goals conflict, and a test checks it.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count as count_from
from itertools import permutations
from pathlib import Path
from typing import Any

from soul.cli.arguments import output_file, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.files.whole_file import write_whole

Environment = dict[str, Any]
_MOST_TRIES = 2000
_GOODS = {
    "a cedar wardrobe with two drawers": 240,
    "a folding bicycle with new tyres": 310,
    "an upright piano that needs tuning": 650,
    "a set of six garden chairs": 130,
    "a second-hand telescope on a tripod": 420,
    "a sewing machine with its case": 160,
    "a leather armchair with a small tear": 190,
    "an aquarium with pump and lamp": 110,
    "a canoe with one paddle": 380,
    "a gas grill that was used for one summer": 150,
}
_THINGS = "lamp, rug, kettle, mirror, radio, bookshelf, plant, quilt, clock, toaster, basket, painting".split(", ")
_REASONS = ("one of them is moving abroad", "they have shared a storage room", "they won a raffle together")
_PLANS = (
    "see a play by students, cook at home, go bowling, hear a string quartet, watch a football match, visit the night "
    "market, play board games, go to a poetry reading, swim in the lake, try the new noodle bar"
).split(", ")


def bargain(rng: random.Random) -> Environment:
    """A seller and a buyer. Both targets lie around the listed price, the seller's above the buyer's."""
    good, usual = rng.choice(list(_GOODS.items()))
    listed = round(usual * rng.uniform(0.8, 1.3))
    # Buyer's target < seller's limit < buyer's limit < seller's target: a deal is possible, and neither target is.
    spans = ((0.5, 0.6), (0.65, 0.74), (0.79, 0.88), (0.93, 0.99))
    low, worst, most, high = (round(listed * rng.uniform(*span)) for span in spans)
    return {
        "scenario": f"One person is selling {good}, listed for ${listed}. Another person has come to look at it.",
        "agent_goals": [
            f"You are the seller. Sell it for as close to ${high} as you can. (<extra_info>You would rather keep it "
            f"than take less than ${worst}.</extra_info>)",
            f"You are the buyer. Buy it for as close to ${low} as you can. (<extra_info>You cannot pay more than "
            f"${most}.</extra_info>)",
        ],
        "relationship": "0",
        "conflict": {"seller": [worst, high], "buyer": [low, most]},
    }


def division(rng: random.Random) -> Environment:
    """Two people divide things. The thing that is worth most to one is worth most to the other as well."""
    things = rng.sample(_THINGS, 3)
    # In the same order of worth, so that each wants most what the other wants most.
    points = [sorted(rng.sample(range(2, 7), 3), reverse=True) for _ in range(2)]
    goals = [
        "Get as many points as you can, and stay on good terms. (<extra_info>"
        + " ".join(f"The {thing} gives you {value} points." for thing, value in zip(things, values, strict=True))
        + "</extra_info>)"
        for values in points
    ]
    listed = f"a {things[0]}, a {things[1]} and a {things[2]}"
    reason = rng.choice(_REASONS)
    return {
        "scenario": f"Two friends have to divide {listed}, because {reason}. Each thing goes to one of them.",
        "agent_goals": goals,
        "relationship": "3",
        "conflict": {"points": points},
    }


def evening(rng: random.Random) -> Environment:
    """Two people choose a plan. The first choice of each is the last choice of the other."""
    plans = rng.sample(_PLANS, 3)
    orders = [plans, plans[::-1]]
    goals = [
        f"Agree on a plan that suits you. (<extra_info>You would like most to {order[0]}, would also {order[1]}, and "
        f"do not want to {order[2]} at all. Do not say straight out that you dislike it.</extra_info>)"
        for order in orders
    ]
    first, second, third = rng.choice(list(permutations(plans)))
    return {
        "scenario": f"Two people have one free evening together. They could {first}, {second} or {third}.",
        "agent_goals": goals,
        "relationship": rng.choice(("3", "4")),
        "conflict": {"orders": orders},
    }


KINDS: Mapping[str, Callable[[random.Random], Environment]] = {
    "bargain": bargain,
    "division": division,
    "evening": evening,
}


def generate(count: int, seed: int = 0, kinds: Sequence[str] = tuple(KINDS)) -> list[Environment]:
    """`count` different environments, as many of each kind as possible; the first ones stay if `count` grows.

    Raises:
        ValueError: there are not so many different ones.
    """
    found: dict[str, Environment] = {}
    tries = 0  # since the last new one
    for number in count_from(0):
        tries += 1
        kind = kinds[len(found) % len(kinds)]
        environment = KINDS[kind](random.Random(f"sotopia_scenarios:{seed}:{number}"))
        name = {"env_id": f"generated-{seed}-{kind}-{len(found)}", "codename": f"generated_{kind}_{len(found)}"}
        fixed = {"source": "generated", "age_constraint": "[(18, 70), (18, 70)]", "occupation_constraint": "nan"}
        key = environment["scenario"] + environment["agent_goals"][0]
        if key not in found:
            found[key], tries = {**name, **fixed, **environment}, 0
        if len(found) == count or tries > _MOST_TRIES:
            break
    if len(found) == count:
        return list(found.values())
    raise ValueError(f"there are only {len(found):,} different environments of these kinds")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write the environments as JSON lines."""
    parser = Parser(prog="python -m data.sotopia_scenarios", description=__doc__)
    parser.add_argument("--count", type=positive_int, default=300, help="environments (default 300)")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="default: all three")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=output_file, required=True, metavar="FILE.jsonl")
    args: argparse.Namespace = parser.parse_args(arguments)
    environments = generate(args.count, args.seed, args.kinds)
    out: Path = args.out
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, (json.dumps(one) + "\n" for one in environments))
    print(f"{out}: {len(environments):,} environments")
    return 0


if __name__ == "__main__":
    sys.exit(main())
