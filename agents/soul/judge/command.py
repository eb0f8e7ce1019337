"""Inspect the judge gateway, and measure the judge.

    soul judge show                    # the resolved endpoint of each role; keys as "set" or "NOT SET"
    soul judge check                   # make one real call for each role
    soul judge canaries [--json F]     # does the judge fall for known tricks?
    soul judge agree TASK              # does it agree with people? (soul.agree)
    soul judge draw RUN --out FOLDER   # draw texts for people to label (soul.annotate)
    soul judge biases, soul judge card # its biases; all that is known of it, in one file

Settings come from the environment, and from arguments such as judge.model=gpt-5-mini or
partner.base_url=http://127.0.0.1:8000/v1.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from soul.cli.arguments import output_file
from soul.cli.error_border import Parser, reports_errors
from soul.errors import JudgeFailure, SoulError
from soul.judge import preflight
from soul.judge.audit import canaries
from soul.judge.call.endpoint import Endpoint
from soul.judge.gateway import Gateway
from soul.judge.ledger import Ledger, table
from soul.judge.roles import GatewaySettings, policy_endpoint, sections_of
from soul.table import Table

console = Console(width=max(120, Console().width))  # rich assumes 80 columns for a pipe, too few for the tables
Sections = Mapping[str, Mapping[str, Any]]


def endpoints_of(sections: Sections) -> dict[str, Endpoint]:
    """Every endpoint that a run with these settings may call, by its section; members of a jury have numbers."""
    endpoints: dict[str, Endpoint] = {}
    for section, asked in GatewaySettings.from_sections(sections).sections.items():
        endpoints |= {section if len(asked) == 1 else f"{section} {i + 1}": one for i, one in enumerate(asked)}
    policy = policy_endpoint(sections.get("policy"))
    return endpoints | ({"policy": policy} if policy else {})


def show(sections: Sections) -> int:
    """Print the resolved endpoints. No part of a key is shown."""
    lines = []
    for role, endpoint in endpoints_of(sections).items():
        key = f"{endpoint.api_key_env}: {'set' if preflight.has_key(endpoint) else 'NOT SET'}"
        rates = (endpoint.requests_per_minute, endpoint.tokens_per_minute)
        prices = ("-", "-") if endpoint.prices is None else (f"{price:g}" for price in endpoint.prices[::2])
        lines.append(
            [
                *(role, endpoint.model, endpoint.address, key if endpoint.api_key_env else "none needed"),
                *(endpoint.reasoning_effort or "", str(endpoint.concurrency)),
                " / ".join("-" if rate is None else f"{rate:,g}" for rate in rates),
                *(f"{endpoint.timeout_s:g} s", " / ".join(prices)),
            ]
        )
    head = ("role", "model", "address", "key", "effort", "concurrency", "rpm / tpm", "timeout", "$ in / out")
    console.print(Table(head, lines, words=frozenset(range(len(head)))).rich("The judge gateway"))
    policy = GatewaySettings.from_sections(sections).policy
    budget = "none" if policy.budget_usd is None else f"${policy.budget_usd:,.2f}"
    cache = "on" if policy.cache else "off"
    console.print(f"cache {cache}; up to {policy.max_failure_rate:.0%} of sessions may fail; budget {budget}")
    return 0


async def check(sections: Sections) -> int:
    """Make one real call for each role. Returns 1 if any of them fails, else 0."""
    settings, policy, failed = GatewaySettings.from_sections(sections), policy_endpoint(sections.get("policy")), 0
    for section in (*settings.sections, *(["policy"] if policy else [])):
        try:
            if policy and section == "policy":
                line = f"{await preflight.seconds_to_answer(policy):.2f} s"
            else:
                found = (await preflight.check(settings, [section]))[section]
                line = f"{found.latency_s:.2f} s" + (f", structured answers as {found.mode}" if found.mode else "")
        except (JudgeFailure, SoulError) as error:
            failed += 1
            console.print(f"{section}: FAILED  {error}", markup=False)
        else:
            console.print(f"{section}: works, {line}", markup=False)
    return 1 if failed else 0


async def audit(sections: Sections, args: argparse.Namespace) -> int:
    """Run the canary suite. Returns 1 if the judge does not pass, else 0."""
    # There is no run folder here, so there is a cache only if judge.cache_dir is set.
    async with Gateway.connect(GatewaySettings.from_sections(sections)) as gateway:
        await gateway.judge.check()
        outcomes = await canaries.run(gateway.judge)
        ledger = Ledger()
        ledger.add(args.command, gateway.usage())
    console.print(canaries.table(outcomes), table(ledger))
    if args.json is not None:
        result = canaries.to_json(outcomes)
        args.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return canaries.verdict(outcomes)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 1 if a check failed."""
    parser = Parser(prog="soul judge", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("show", "check", "canaries"):
        command = commands.add_parser(name)
        command.add_argument("settings", nargs="*", help="section.key=value")
        if name == "canaries":
            command.add_argument("--json", type=output_file, help="write the results here")
    args = parser.parse_args(arguments)
    sections = sections_of(args.settings)
    if args.command == "show":
        return show(sections)
    return asyncio.run(check(sections) if args.command == "check" else audit(sections, args))
