"""All roles of a run behind one object. Roles with the same endpoint share its connection, limits and cache."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from soul.judge.cache import Cache
from soul.judge.call.endpoint import Endpoint
from soul.judge.call.kept_call import KeptCall, bounded
from soul.judge.call.usage import Usage, merged
from soul.judge.client import Completions, EndpointClient
from soul.judge.judge import ChatModel, Judge
from soul.judge.limits import Budget, shared_limits
from soul.judge.roles import ROLES, GatewaySettings, Role

SAMPLED: tuple[Role, ...] = ("partner", "environment")  # never cached: the same question may get different answers
KEPT: tuple[Role, ...] = ("judge", "feedback")  # their calls are kept with the session


def connect_endpoints(
    settings: GatewaySettings, cache_dir: Path | None, budget: Budget
) -> dict[Endpoint, EndpointClient]:
    """A client for every endpoint of these settings; they share the cache and the budget.

    Args:
        cache_dir: the folder of this machine's cache file, unless judge.cache_dir names another; None: no cache.
    """
    policy = settings.policy
    folder = Path(policy.cache_dir) if policy.cache_dir else cache_dir
    cache = Cache(folder / f"{platform.node()}.sqlite") if policy.cache and folder else None
    return {e: EndpointClient(e, shared_limits(e), budget, cache) for e in settings.endpoints}


@dataclass
class Gateway:
    """The roles as a session uses them."""

    settings: GatewaySettings
    roles: Mapping[Role, Judge]  # by name
    jury: tuple[Judge, ...]  # the judges whose verdicts are averaged; only the judge if no jury is configured
    by_task: Mapping[str, Judge] = field(default_factory=dict)  # the judges of tasks that have their own
    canary: Judge | None = None  # the second judge, whose scores never reach the reward; None if there is none

    @classmethod
    def connect(cls, settings: GatewaySettings, cache_dir: Path | None = None, spent_usd: float = 0.0) -> Gateway:
        """Connect every role from this process; a resumed run has spent something already."""
        budget = Budget(settings.policy.budget_usd, spent_usd)
        return cls.of_clients(settings, connect_endpoints(settings, cache_dir, budget))

    @classmethod
    def of_clients(cls, settings: GatewaySettings, clients: Mapping[Endpoint, Completions]) -> Gateway:
        """The roles on these clients, one for each endpoint of the settings."""
        roles: dict[Role, Judge] = {
            role: Judge(clients[e], cached=role not in SAMPLED) for role, e in settings.roles.items()
        }
        jury = tuple(Judge(clients[e], member=i) for i, e in enumerate(settings.jury))
        by_task = {task: Judge(clients[e]) for task, e in settings.by_task.items()}
        canary = Judge(clients[settings.canary]) if settings.canary else None
        return cls(settings, roles, jury or (roles["judge"],), by_task, canary)

    @classmethod
    def from_judge(cls, judge: Judge) -> Gateway:
        """A gateway that uses one model for every role."""
        others = {r: replace(judge, usage=Usage(), cached=r not in SAMPLED) for r in ROLES[1:]}
        roles: dict[Role, Judge] = {"judge": judge, **others}
        return cls(GatewaySettings(roles={role: judge.endpoint for role in ROLES}), roles, (judge,))

    @property
    def judge(self) -> Judge:
        return self.roles["judge"]

    @property
    def feedback(self) -> Judge:
        return self.roles["feedback"]

    @property
    def partner(self) -> ChatModel:
        return self.roles["partner"]

    @property
    def environment(self) -> Judge:
        return self.roles["environment"]

    def scope(self, task: str = "", hidden: frozenset[str] = frozenset()) -> Gateway:
        """The same roles with separate counters, for one session; with `task`'s own judge if it has one.

        Args:
            hidden: dimensions that the judges, but not the canary, are not asked for.
        """
        roles = {role: judge.scope() for role, judge in self.roles.items()}
        if task in self.by_task:
            roles["judge"] = self.by_task[task].scope()
        alone = task in self.by_task or self.jury[0] is self.judge
        roles["judge"] = replace(roles["judge"], hidden=hidden)
        jury = (roles["judge"],) if alone else tuple(replace(judge.scope(), hidden=hidden) for judge in self.jury)
        return Gateway(self.settings, roles, jury, canary=self.canary.scope() if self.canary else None)

    def usage(self) -> dict[str, Usage]:
        """The usage of each role that made a call, and of the canary; members of a jury count as the judge."""
        unique = {id(judge.usage): (role, judge.usage) for role, judge in self._judges()}  # a lone judge is its jury
        return merged((role, usage) for role, usage in unique.values() if usage.calls)

    def take_calls(self) -> list[KeptCall]:
        """The calls of judges and feedback since they were taken the last time, in a scope; see `bounded`."""
        lists = {id(judge.kept): (role, judge.kept or []) for role, judge in self._judges() if role in KEPT}
        calls = [call.model_copy(update={"role": role}) for role, kept in lists.values() for call in kept]
        for _, kept in lists.values():
            kept.clear()
        return bounded(calls)

    def _judges(self) -> Iterator[tuple[str, Judge]]:
        """Every judge with its name in the usage."""
        yield from self.roles.items()
        yield from (("judge", judge) for judge in (*self.jury, *self.by_task.values()))
        if self.canary:
            yield "canary", self.canary

    async def __aenter__(self) -> Gateway:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections and the cache."""
        for client in {id(judge.endpoint_client): judge.endpoint_client for _, judge in self._judges()}.values():
            await client.close()
