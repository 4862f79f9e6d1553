"""The contract of a router adapter, and what the answers of every router Pod prove together.

A router speaks of addresses; a retirement is about UIDs. A *look* is one bounded pass over every router Pod of a
deployment, bound to Pods by the lists taken before and after it. Its finding is three-valued: only a complete answer of
every router Pod can say that a target is selected no more, and anything less is unknown, which releases nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from controller.clock import Instant
from controller.snapshot import PodView


@dataclass(frozen=True, slots=True)
class Abilities:
    """What one router, in one range of versions, can do; measured, never assumed."""

    versions: str
    follows_labels: bool
    """Taking the eligibility label off withdraws a Pod, and putting it back returns it."""
    removes_by_api: bool
    counts_dispatches: bool
    exact_in_flight: bool
    """Its in-flight figure stays right after removal, so that a number above zero there is work under way."""
    settle_seconds: float
    """How long after the first clean look a request that was picked before may still reach the engine."""


class AnswerKind(StrEnum):
    COMPLETE = "Complete"
    NOT_RUNNING = "NotRunning"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class RouterAnswer:
    """What one router Pod said. Keys of the mappings are addresses, `<ip>:<port>`."""

    router: str
    router_uid: str
    process: str
    """Container ID and restart count: a change means that every counter began at zero again."""
    kind: AnswerKind
    detail: str = ""
    rows: tuple[str, ...] = ()
    dispatched: Mapping[str, float] | None = None
    in_flight: Mapping[str, float] | None = None


class Sight(StrEnum):
    """The finding of a look about the targets."""

    CLEAN = "Clean"
    BUSY = "Busy"
    """Selected no more, but a router that counts exactly still has requests open at a target."""
    LISTED = "Listed"
    """A router may select a target: it has a row of one, or its dispatch counter grew."""
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Look:
    """The finding of one pass over all router Pods, with the times that evidence rules need."""

    sight: Sight
    reason: str
    answers: tuple[RouterAnswer, ...]
    started_at: Instant
    finished_at: Instant
    started: float
    """Monotonic seconds, as `finished`."""
    finished: float
    listing: tuple[tuple[str, str], ...] = ()
    """(router Pod name, address) of each row that names a target."""

    @property
    def withdrawn(self) -> bool:
        """No router selects a target any more, whether or not its last requests have ended."""
        return self.sight in (Sight.CLEAN, Sight.BUSY)


class Fetch(Protocol):
    """One bounded HTTP call to a Pod. Raises `UnreachableError` when there is no whole answer."""

    async def __call__(self, method: str, url: str, *, timeout: float) -> tuple[int, bytes]: ...


class UnreachableError(Exception):
    """A router Pod gave no whole answer; the text says why."""


class Adapter(Protocol):
    """One router in one range of versions."""

    name: str
    abilities: Abilities

    async def ask(self, router: PodView, *, fetch: Fetch, timeout: float) -> RouterAnswer:
        """What this router Pod lists and counts. Never raises for a bad answer: that is `UNKNOWN`."""
        ...

    async def remove(self, router: PodView, address: str, *, fetch: Fetch, timeout: float) -> None:
        """Ask this router Pod to drop a row; the answer is no evidence. Raises UnreachableError."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The Pods as listed from the API server, uncached, before or after a look."""

    routers: tuple[PodView, ...]
    pods: tuple[PodView, ...]

    @property
    def fingerprint(self) -> tuple[tuple[str, str, str], ...]:
        """What must be equal before and after: which Pods, which addresses, which router processes."""
        routers = ((pod.uid, pod.ip, process_of(pod)) for pod in self.routers)
        pods = ((pod.uid, pod.ip, "") for pod in self.pods)
        return (*sorted(routers), *sorted(pods))


def process_of(router: PodView) -> str:
    """Which process the router Pod runs: its container IDs and restart counts."""
    statuses = router.status.get("containerStatuses") or ()
    return ",".join(f"{s.get('containerID') or '-'}#{s.get('restartCount') or 0}" for s in statuses)


def is_running(router: PodView) -> bool:
    """False only when the Pod is verified to run no container: none has started, or all have ended."""
    statuses = router.status.get("containerStatuses") or ()
    return any("running" in (status.get("state") or {}) for status in statuses)


def judge(
    *,
    answers: Sequence[RouterAnswer],
    before: Surroundings,
    after: Surroundings,
    target_uids: frozenset[str],
    earlier: Sequence[Look],
    span: tuple[Instant, Instant, float, float],
) -> Look:
    """Turn the answers of every router Pod into one finding about the targets.

    `span` is (started_at, finished_at, started, finished). `earlier` are the looks before this one of the same
    operation, oldest first: growth of a dispatch counter can only be seen against what a router said before.
    """
    started_at, finished_at, started, finished = span

    def look(sight: Sight, reason: str, listing: tuple[tuple[str, str], ...] = ()) -> Look:
        return Look(
            sight=sight,
            reason=reason,
            answers=tuple(answers),
            started_at=started_at,
            finished_at=finished_at,
            started=started,
            finished=finished,
            listing=listing,
        )

    if before.fingerprint != after.fingerprint:
        return look(
            Sight.UNKNOWN, "Pods changed while the routers were being asked, so the look is thrown away"
        )
    if not before.routers:
        return look(Sight.UNKNOWN, "there is no router Pod to ask")
    target_ips = {pod.ip for pod in before.pods if pod.uid in target_uids and pod.ip}
    known_ips = {pod.ip for pod in before.pods if pod.ip and not pod.terminal}
    listing = tuple(
        (answer.router, row) for answer in answers for row in answer.rows if _ip(row) in target_ips
    )
    if listing:
        router, address = listing[0]
        return look(Sight.LISTED, f"router {router} still lists {address}", listing)
    for answer in answers:
        if answer.kind is AnswerKind.UNKNOWN:
            return look(Sight.UNKNOWN, f"router {answer.router} gave no complete answer: {answer.detail}")
    if all(answer.kind is AnswerKind.NOT_RUNNING for answer in answers):
        return look(Sight.UNKNOWN, "no router runs that could say what it selects")
    for answer in answers:
        for row in answer.rows:
            if _ip(row) not in known_ips:
                return look(
                    Sight.UNKNOWN,
                    f"router {answer.router} lists {row}, which is the address of no live replica",
                )
    before_now = [a for seen in earlier for a in seen.answers if a.kind is AnswerKind.COMPLETE]
    grown = _growth(answers, before_now, target_ips)
    if grown:
        return look(Sight.LISTED, grown)
    restarted = _restarted(answers, before_now)
    if restarted:
        return look(Sight.UNKNOWN, restarted)
    for answer in answers:
        for address, count in (answer.in_flight or {}).items():
            if _ip(address) in target_ips and count > 0:
                return look(Sight.BUSY, f"router {answer.router} has {count:g} requests open at {address}")
    return look(Sight.CLEAN, f"no router of {len(answers)} lists it")


def _growth(answers: Sequence[RouterAnswer], earlier: Sequence[RouterAnswer], target_ips: set[str]) -> str:
    """A sentence when a router sent a target something since its last complete answer, else ""."""
    last = {answer.process: answer for answer in earlier}
    for answer in answers:
        before = last.get(answer.process)
        if before is None or answer.dispatched is None or before.dispatched is None:
            continue
        for address, count in answer.dispatched.items():
            # A series that was missing meant: nothing dispatched since the process started.
            if _ip(address) in target_ips and count > before.dispatched.get(address, 0.0):
                return f"router {answer.router} sent requests to {address} since it was asked before"
    return ""


def _restarted(answers: Sequence[RouterAnswer], earlier: Sequence[RouterAnswer]) -> str:
    """A sentence when a router process is not the one that answered before: its counters began anew."""
    last = {answer.router_uid: answer.process for answer in earlier}
    for answer in answers:
        if last.get(answer.router_uid, answer.process) != answer.process:
            return f"router {answer.router} restarted since it was asked before"
    return ""


def _ip(address: str) -> str:
    """The host of `<ip>:<port>`; IPv6 stands in brackets."""
    return address.rpartition(":")[0].strip("[]")
