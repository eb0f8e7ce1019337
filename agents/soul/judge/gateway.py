"""All roles of a run behind one object. Roles with the same endpoint share its connection, its limits and its cache."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from soul.judge.cache import Cache
from soul.judge.call.client import EndpointClient
from soul.judge.call.endpoint import Endpoint
from soul.judge.call.usage import Usage
from soul.judge.judge import ChatModel, Judge, line_settings
from soul.judge.roles import ROLES, GatewaySettings, Role
from soul.judge.throttle.local_gate import RequestGate, SyncLimits, in_process
from soul.judge.throttle.shared_limits import EndpointLimits, SharedLimits

SAMPLED: tuple[Role, ...] = ("partner", "environment")  # equal questions may have different answers: never cached


def lines_of(settings: GatewaySettings) -> dict[str, EndpointLimits]:
    """The limits of every endpoint, by the key that gates use."""
    return {_key(e): line_settings(e, breaker=settings.policy.breaker) for e in settings.endpoints}


def limits_of(settings: GatewaySettings, spent_usd: float = 0.0) -> SharedLimits:
    """The limits of a run; see `soul.judge.throttle.shared_limits` on where they live."""
    return SharedLimits(lines_of(settings), settings.policy.budget_usd, spent_usd)


def _key(endpoint: Endpoint) -> str:
    # One model may be asked with two sets of settings. (Not Python's hash: processes must agree.)
    return f"{endpoint.name}#{hashlib.sha256(endpoint.model_dump_json().encode()).hexdigest()[:8]}"


class _Scopes(Mapping[Role, Judge]):
    """The roles of one session, each made when it is first used: most sessions use one of the four, and making all
    costs as much as scoring an answer."""

    def __init__(self, of: Mapping[Role, Judge]) -> None:
        self._of = of
        self.made: dict[Role, Judge] = {}

    def __getitem__(self, role: Role) -> Judge:
        if role not in self.made:
            self.made[role] = self._of[role].scope()
        return self.made[role]

    def __iter__(self) -> Iterator[Role]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


@dataclass
class Gateway:
    """The roles as a session uses them.

    Attributes:
        roles: by name.
        jury: the judges whose verdicts are averaged; the judge alone where no jury is set.
        by_task: judges of single tasks.
    """

    settings: GatewaySettings
    roles: Mapping[Role, Judge]
    jury: tuple[Judge, ...]
    by_task: Mapping[str, Judge] = field(default_factory=dict)

    @classmethod
    def connect(
        cls, settings: GatewaySettings, port: SyncLimits | None = None, cache_dir: Path | None = None
    ) -> Gateway:
        """Connect every role.

        Args:
            port: the way to the run's limits; None: limits of this process alone.
            cache_dir: where this machine's cache file is, unless judge.cache_dir says otherwise; None: no cache.

        Raises:
            BadCache: the cache file cannot be used.
        """
        port = port or in_process(limits_of(settings))
        process = f"{platform.node()}:{os.getpid()}"
        lines = {e: EndpointClient(e, RequestGate(_key(e), process, port)) for e in settings.endpoints}
        folder = Path(settings.policy.cache_dir) if settings.policy.cache_dir else cache_dir
        cache = None
        if settings.policy.cache and folder is not None:
            cache = Cache(folder / f"{platform.node()}.sqlite", settings.policy.cache_max_mb)
        asking: dict[bytes, asyncio.Future[str]] = {}
        roles: dict[Role, Judge] = {
            role: Judge(lines[e], cache=None if role in SAMPLED else cache, asking=asking)
            for role, e in settings.roles.items()
        }
        jury = tuple(Judge(lines[e], cache=cache, asking=asking, member=i) for i, e in enumerate(settings.jury))
        by_task = {t: Judge(lines[e], cache=cache, asking=asking) for t, e in settings.by_task.items()}
        return cls(settings, roles, jury or (roles["judge"],), by_task)

    @classmethod
    def from_judge(cls, judge: Judge) -> Gateway:
        """One model for every role."""
        others = {r: replace(judge, usage=Usage(), cache=None if r in SAMPLED else judge.cache) for r in ROLES[1:]}
        roles: dict[Role, Judge] = {"judge": judge, **others}
        settings = GatewaySettings(roles={role: judge.endpoint for role in ROLES})
        return cls(settings, roles, (judge,))

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

    def scope(self, task: str = "") -> Gateway:
        """The same roles with counters of their own (one session); `task`'s own judge where it has one."""
        if task in self.by_task:
            roles = _Scopes({**self.roles, "judge": self.by_task[task]})
            return Gateway(self.settings, roles, (roles["judge"],))
        roles = _Scopes(self.roles)
        alone = len(self.jury) == 1 and self.jury[0] is self.roles["judge"]
        jury = (roles["judge"],) if alone else tuple(judge.scope() for judge in self.jury)
        return Gateway(self.settings, roles, jury)

    def usage(self) -> dict[str, Usage]:
        """What each role was asked, for those that were asked anything; the jury's members count as the judge."""
        roles = self.roles.made if isinstance(self.roles, _Scopes) else self.roles
        asked: dict[Role, list[Usage]] = {role: [judge.usage] for role, judge in roles.items()}
        asked.setdefault("judge", []).extend(j.usage for j in self.jury if j is not roles.get("judge"))
        total: dict[str, Usage] = {}
        for role, counts in asked.items():
            for count in counts:
                if count.calls:  # most sessions ask one role: to add up noughts costs more CPU than the rest of this
                    total.setdefault(role, Usage()).merge(count)
        return total

    async def close(self) -> None:
        """Close the connections and the cache."""
        judges = (*self.roles.values(), *self.jury, *self.by_task.values())
        for line in {id(judge.line): judge.line for judge in judges}.values():
            await line.close()
        for cache in {id(judge.cache): judge.cache for judge in judges if judge.cache}.values():
            cache.close()
