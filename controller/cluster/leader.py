"""Leader election on a Lease, so that of several controllers one acts and the others wait with warm caches.

Nobody's wall clock is trusted. A holder may act until `renew_seconds` after it *sent* its last renewal that was
answered. A rival takes over once it has *seen* the same record for the whole of the lease's duration, by a replace at
that record's version: a renewal it has not seen makes the replace fail. It cannot have seen a record before that was
sent, so the holder has stopped acting by the difference of the two durations before anybody else begins. Both count
on CLOCK_BOOTTIME, which goes on while a process is stopped or its machine suspended: whoever wakes up late finds the
fence closed before it does anything.

A lost lease is not won back: LeaseLostError ends the process, since a restart is the one state that is surely clean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NoReturn, Protocol

import structlog

from controller.clock import Clock, format_time
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.reads import get
from controller.cluster.resources import LEASES
from controller.cluster.writes import WRITE_SECONDS

LEASE_NAME: Final = "ebb-controller"

REQUEST_SECONDS: Final = 4.0
"""How long one request for the Lease may take: two fit into the time in which a renewal must succeed."""

JITTER: Final = 1.2
"""Pauses are longer by up to a fifth at random, so that rivals do not ask in step."""

HANDOVER_SECONDS: Final = WRITE_SECONDS + 5.0
"""How long after its lease a predecessor's last write may still take effect."""


class LeaseLostError(Exception):
    """This process may not act (any more); the text says why."""


class Leadership(Protocol):
    """What those who act are told about the right to do so."""

    @property
    def leads(self) -> bool:
        """Whether this process may act now."""
        ...

    @property
    def handing_over(self) -> bool:
        """Whether a write that another process sent before it lost the lease may still be on its way."""
        ...

    def left(self) -> float:
        """Seconds for which this process may still act. Raises LeaseLostError when there are none."""
        ...


class Unelected:
    """The leadership of a process that was told to be the only one."""

    leads = True
    handing_over = False

    def left(self) -> float:
        return math.inf


UNELECTED: Final = Unelected()


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, by default those of Kubernetes' own controllers."""

    lease_seconds: int = 15
    """How long a record must stand unchanged before a rival may take over; written into the Lease, so whole seconds."""
    renew_seconds: float = 10.0
    """How long after its last renewal a holder may act."""
    retry_seconds: float = 2.0
    """The pause between two attempts, of the holder to renew and of the others to acquire."""

    def __post_init__(self) -> None:
        if not self.retry_seconds * JITTER < self.renew_seconds < self.lease_seconds:
            raise ValueError(f"{self}: retries must fit into the renew deadline, and that into the lease")


TIMING: Final = Timing()


class Elector:
    """One candidate for one Lease. Use `acquire`, then `keep` beside the work; `release` when the work is over.

    `identity` must be new for each process: who finds it in the Lease takes the record for its own.
    """

    def __init__(
        self,
        *,
        client: Client,
        clock: Clock,
        random: Random,
        namespace: str,
        identity: str,
        name: str = LEASE_NAME,
        timing: Timing = TIMING,
    ) -> None:
        """`client` should carry nothing else: renewals must not wait behind other calls."""
        self._client = client
        self._clock = clock
        self._random = random
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing
        self._renewed_at = -math.inf
        self._taken_over_at = -math.inf
        self._own: Mapping[str, Any] | None = None
        """The Lease as our last write left it; None when somebody else wrote since, or may have."""
        self._seen: Mapping[str, Any] | None = None
        self._seen_at = -math.inf
        self._log = structlog.get_logger("leader").bind(lease=f"{namespace}/{name}", identity=identity)

    # --- what those who act ask -----------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self._clock.monotonic() < self.ends_at

    @property
    def ends_at(self) -> float:
        """When, on `monotonic`, this process must stop acting unless it renews before; -inf without the Lease."""
        return self._renewed_at + self._timing.renew_seconds

    @property
    def handing_over(self) -> bool:
        return self._clock.monotonic() - self._taken_over_at < HANDOVER_SECONDS

    def left(self) -> float:
        left = self.ends_at - self._clock.monotonic()
        if left <= 0:
            raise LeaseLostError(self._why_not())
        return left

    # --- its life -------------------------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Wait until the Lease is ours. Refusals and silence of the API server are logged and waited out."""
        told = ""
        while True:
            try:
                holder = await self._take()
            except (ApiError, NoAnswerError) as error:
                self._log.warning("the Lease could not be acquired and is tried again", error=str(error))
            else:
                if holder == self._identity:
                    self._log.info("leading")
                    return
                if holder != told:
                    self._log.info("standing by", holder=holder)
                told = holder
            await self._clock.sleep(self._until_next_attempt())

    async def keep(self) -> NoReturn:
        """Renew for as long as that goes. Raises LeaseLostError, at the renew deadline at the latest."""
        while True:
            await self._clock.sleep(min(self._pause(), self.left()))
            left = self.left()
            try:
                await self._renew(timeout=min(REQUEST_SECONDS, left))
            except (ApiError, NoAnswerError) as error:
                self._log.warning("the Lease was not renewed", left=round(left, 1), error=str(error))

    async def release(self) -> None:
        """Give the Lease up so that another may take it at once; only when nothing that acts runs any more.

        One that is not surely ours is left to expire.
        """
        if not self.leads or self._own is None:
            return
        self._renewed_at = -math.inf
        spec = {key: value for key, value in self._own["spec"].items() if key != "holderIdentity"}
        try:
            await self._replace(self._own, {**spec, "renewTime": self._stamp()}, timeout=REQUEST_SECONDS)
        except (ApiError, NoAnswerError) as error:
            self._log.warning("the Lease could not be released and will expire", error=str(error))
        else:
            self._log.info("the Lease is released")

    # --- attempts -------------------------------------------------------------------------------------------

    async def _take(self) -> str:
        """One attempt to acquire; who holds the Lease after it, "" when it was taken under our hands."""
        lease = await self._read()
        sent = self._clock.monotonic()
        try:
            if lease is None:
                answer = await self._create()
            elif self._may_be_taken(lease):
                answer = await self._replace(lease, self._taken(lease), timeout=REQUEST_SECONDS)
            else:
                return _holder(lease)
        except ApiError as error:
            if error.conflict or error.already_exists:
                return ""
            raise
        self._written(answer, sent=sent)
        if lease is not None:
            self._taken_over_at = self._clock.monotonic()
        return self._identity

    async def _renew(self, *, timeout: float) -> None:
        """One attempt to renew. Raises LeaseLostError when the Lease is somebody else's or nobody's."""
        lease = self._own
        if lease is None:
            # An earlier write may or may not have had its effect; the Lease itself tells.
            lease = await self._read(timeout=timeout)
            if lease is None or _holder(lease) != self._identity:
                self._renewed_at = -math.inf
                raise LeaseLostError(self._why_not(_holder(lease) if lease else "nobody"))
        sent = self._clock.monotonic()
        self._own = None
        spec = {**lease["spec"], "renewTime": self._stamp()}
        self._written(await self._replace(lease, spec, timeout=timeout), sent=sent)

    def _written(self, answer: Mapping[str, Any], *, sent: float) -> None:
        self._own = answer
        self._renewed_at = sent

    def _may_be_taken(self, lease: Mapping[str, Any]) -> bool:
        spec = lease.get("spec") or {}
        if _holder(lease) in ("", self._identity):
            return True
        return self._clock.monotonic() >= self._seen_at + self._duration(spec)

    def _taken(self, lease: Mapping[str, Any]) -> dict[str, Any]:
        spec = lease.get("spec") or {}
        return self._new_spec(transitions=int(spec.get("leaseTransitions") or 0) + 1)

    def _new_spec(self, *, transitions: int) -> dict[str, Any]:
        now = self._stamp()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.lease_seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _stamp(self) -> str:
        """For people, and different each time; nobody computes with it."""
        return format_time(self._clock.now().latest)

    def _duration(self, spec: Mapping[str, Any]) -> float:
        """How long the holder's record counts: what the holder itself wrote, since it may be of another version."""
        return float(spec.get("leaseDurationSeconds") or self._timing.lease_seconds)

    def _pause(self) -> float:
        return self._timing.retry_seconds * self._random.uniform(1.0, JITTER)

    def _until_next_attempt(self) -> float:
        """A pause, but no longer than until the record that was seen last expires."""
        if self._seen is None or not _holder(self._seen):
            return self._pause()
        left = self._seen_at + self._duration(self._seen["spec"]) - self._clock.monotonic()
        return min(self._pause(), left) if left > 0 else self._pause()

    def _why_not(self, holder: str = "") -> str:
        what = f"the Lease {self._namespace}/{self._name}"
        if holder:
            return f"{what} is held by {holder} now, and no more by this process"
        if self._renewed_at == -math.inf:
            return f"{what} is not held by this process"
        age, most = self._clock.monotonic() - self._renewed_at, self._timing.renew_seconds
        return f"{what} was last renewed {age:.1f} s ago, and its holder must not act after {most:g} s"

    # --- the Lease itself -----------------------------------------------------------------------------------

    async def _read(self, *, timeout: float = REQUEST_SECONDS) -> Mapping[str, Any] | None:
        """The Lease, None when there is none. Since when its record has stood unchanged is remembered."""
        path = LEASES.path(namespace=self._namespace, name=self._name)
        lease = await get(self._client, path, timeout=timeout)
        if lease is not None and (self._seen is None or lease.get("spec") != self._seen.get("spec")):
            # Counted from the arrival of the answer: a later moment only keeps us waiting longer.
            self._seen, self._seen_at = lease, self._clock.monotonic()
        return lease

    async def _create(self) -> Mapping[str, Any]:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._new_spec(transitions=0),
        }
        path = LEASES.path(namespace=self._namespace)
        answer = await self._client.request("POST", path, body=body, timeout=REQUEST_SECONDS)
        created: Mapping[str, Any] = answer.body
        return created

    async def _replace(
        self, lease: Mapping[str, Any], spec: Mapping[str, Any], *, timeout: float
    ) -> Mapping[str, Any]:
        """Write a new spec over exactly this version of the Lease; 409 when it was written since."""
        path = LEASES.path(namespace=self._namespace, name=self._name)
        answer = await self._client.request("PUT", path, body={**lease, "spec": spec}, timeout=timeout)
        replaced: Mapping[str, Any] = answer.body
        return replaced


def _holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
