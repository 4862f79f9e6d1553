"""Reads members: one bounded exec into the engine's own container, between two uncached looks at its Pod.

An exec names a Pod, not a UID, and a process may be replaced while it is asked; only a Pod that is the same before and
after lets the answer speak of the member that was admitted. Whatever fails becomes a reading that says what failed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

import structlog

from apis.v1alpha1 import labels
from controller.clock import Clock
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.exec import ExecResult, OutputTooLargeError, run
from controller.cluster.reads import get_pod
from controller.member_reader.envelope import parse_envelope
from controller.member_reader.preflight import MemberTarget, ReadPlan, plan_read
from controller.member_reader.render import read_argv
from controller.member_reader.slots import Slots
from controller.member_reader.verdict import Reading, Series, held, judge
from controller.snapshot import PodView

__all__ = ["MemberReaders", "MemberTarget"]

_log = structlog.get_logger("reader")

READ_SECONDS: Final = 5.0
"""One read in all: waiting for a slot, the connection, the exec and both looks at the Pod."""

SUSPENDED_SECONDS: Final = 1.0
"""How much longer than its bound a read may have taken before it counts as one that slept with the machine."""

MAX_OUTPUT_BYTES: Final = 2 * 1024 * 1024
"""The program bounds the engine's page to 1 MiB; as much again holds the rows of some 20,000 sockets."""

SERIES_KEPT: Final = 4096
"""Members whose label sets are remembered from one read to the next."""

MAX_QUOTED: Final = 200


@dataclass(slots=True)
class _Progress:
    """What a read is at, for the sentence of one that fails there or runs out of time."""

    doing: str = "reading the Pod"

    def now(self, doing: str) -> None:
        self.doing = doing


class MemberReaders:
    """Reads members within the limits of the cluster. One per process: the limits are its own."""

    def __init__(self, *, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._slots = Slots()
        self._series: OrderedDict[tuple[str, str], Series] = OrderedDict()

    async def read(self, target: MemberTarget, *, timeout: float = READ_SECONDS) -> Reading:
        """Read one member within `timeout` seconds, never more than 5. Whatever fails is a reading, too."""
        bound = min(timeout, READ_SECONDS)
        started, started_at = self._clock.monotonic(), self._clock.now()
        progress = _Progress()
        try:
            async with asyncio.timeout(bound):
                reading = await self._read(target, bound, progress)
        except TimeoutError:
            reading = held(f"{target.name} was not read within {bound:g} s: it was still {progress.doing}")
        except (ApiError, NoAnswerError, OutputTooLargeError) as error:
            reading = held(f"{target.name} was not read, {progress.doing} failed: {error}")
        except Exception as error:
            # What comes out of somebody else's container must never end the process of everybody.
            _log.exception("a reading met a defect", pod=target.name)
            reading = held(f"{target.name} was not read, {progress.doing} met a defect: {error!r:.200}")
        if self._clock.monotonic() - started > bound + SUSPENDED_SECONDS:
            # asyncio's clock stands still while the machine is suspended; this one does not.
            took = self._clock.monotonic() - started
            reading = held(f"the reading of {target.name} took {took:.0f} s, which is too old to count")
        return replace(reading, started_at=started_at, finished_at=self._clock.now())

    async def _read(self, target: MemberTarget, bound: float, progress: _Progress) -> Reading:
        before = await self._get(target, bound)
        if before is None:
            return held(f"there is no Pod {target.name}")
        plan = plan_read(before, target)
        if isinstance(plan, Reading):
            return plan
        async with self._slots.take(
            member=target.uid, deployment=target.owner_uid, node=before.node, waiting=progress.now
        ):
            progress.now("running the reader in its container")
            result = await run(
                self._client,
                namespace=target.namespace,
                pod=target.name,
                container=labels.MAIN_CONTAINER,
                argv=read_argv(url=plan.url, gauges=plan.gauges),
                timeout=bound,
                max_bytes=MAX_OUTPUT_BYTES,
            )
        progress.now("reading the Pod once more")
        changed = _changed(before, await self._get(target, bound), target)
        if changed:
            return held(f"{changed}, while it was read")
        return self._judge(target, plan, result)

    async def _get(self, target: MemberTarget, bound: float) -> PodView | None:
        return await get_pod(self._client, namespace=target.namespace, name=target.name, timeout=bound)

    def _judge(self, target: MemberTarget, plan: ReadPlan, result: ExecResult) -> Reading:
        if result.exit_code != 0:
            return held(f"the reader in {target.name} failed: {_failure(result)}")
        key = (target.uid, target.container_id)
        envelope = parse_envelope(
            result.stdout, names=[name for gauge in plan.gauges for name in gauge.names]
        )
        reading = judge(envelope, gauges=plan.gauges, ranks=plan.ranks, previous=self._series.get(key))
        if reading.series:
            self._series[key] = reading.series
            self._series.move_to_end(key)
            if len(self._series) > SERIES_KEPT:
                self._series.popitem(last=False)
        return replace(reading, container_id=target.container_id)


def _changed(before: PodView, after: PodView | None, target: MemberTarget) -> str:
    """What is not as it was before the read, "" when everything is."""
    if after is None:
        return f"{target.name} went away"
    again = plan_read(after, target)
    if isinstance(again, Reading):
        return again.reason
    if after.identity != before.identity:
        fields = [
            name.replace("_", " ")
            for name, old, new in zip(before.identity._fields, before.identity, after.identity, strict=True)
            if old != new
        ]
        return f"{target.name} changed its {', '.join(fields)}"
    return ""


def _failure(result: ExecResult) -> str:
    last = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return "; ".join(part for part in (result.error, last[:MAX_QUOTED]) if part)
