"""What was seen during an operation, and the rules by which it may release a replica.

Held in memory only: losing it costs one more look or read, never a wrong decision. Every rule here asks for things
that were measured; what was not is unknown, and unknown never releases anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from controller.clock import Instant
from controller.member_reader.verdict import Reading, Verdict
from controller.retirement_planner.budgets import IDLE_PAIR_SECONDS
from controller.retirement_planner.state import Operation
from controller.routers.base import Look, Sight

CONFIRM_SPACING_SECONDS: Final = 1.0
"""Two looks that confirm a withdrawal lie at least this far apart."""
KEPT: Final = 16
ANSWER_SECONDS: Final = 15.0
"""A write is given up after 10 s; 5 s later a read that shows no effect of it shows that it had none."""


@dataclass(frozen=True, slots=True)
class Round:
    """Routers listed and members read, both begun together. Times are monotonic seconds."""

    look: Look
    readings: Mapping[str, Reading]
    started_at: datetime
    """The early edge of the API server's time when the round began: evidence is never dated later than it was."""
    started: float
    finished: float

    @property
    def verdict(self) -> Verdict:
        """The round's worst member: a refusal outweighs the unknown, that the busy, and only all idle is idle."""
        verdicts = {reading.verdict for reading in self.readings.values()}
        for verdict in (Verdict.UNSUPPORTED, Verdict.UNKNOWN, Verdict.BUSY):
            if verdict in verdicts:
                return verdict
        return Verdict.IDLE if verdicts else Verdict.UNKNOWN

    @property
    def reason(self) -> str:
        """The sentence of the member that decides the verdict."""
        verdict = self.verdict
        for reading in self.readings.values():
            if reading.verdict is verdict:
                return reading.reason
        return "no member was read"

    @property
    def in_flight(self) -> int | None:
        """Requests that the members hold, None unless every member could say."""
        counts = [reading.in_flight for reading in self.readings.values()]
        if not counts or any(count is None for count in counts):
            return None
        return round(sum(count for count in counts if count is not None))

    def is_idle_for(self, operation: Operation) -> bool:
        """Every member idle on a complete answer of the container admitted, and every router clean."""
        baseline = {target.uid: target.container_id for target in operation.targets}
        return (
            self.look.sight is Sight.CLEAN
            and set(self.readings) == set(baseline)
            and all(
                reading.verdict is Verdict.IDLE and reading.complete and reading.container_id == baseline[uid]
                for uid, reading in self.readings.items()
            )
        )


@dataclass(frozen=True, slots=True)
class DeleteAnswer:
    """What came of a delete: refused by the API server's own word, or accepted, or nobody knows."""

    at: datetime
    """When the answer came, or was given up; the late edge."""
    refused: bool = False
    """A 4xx: certainly nothing was done."""
    sentence: str = ""
    """The words of a refusal or a failure; "" when it was accepted."""

    def may_come(self, now: Instant) -> bool:
        """Whether its effect may still appear. Once no request can be under way any more, a read settles it."""
        return not self.refused and now.seconds_since(self.at) < ANSWER_SECONDS


@dataclass(frozen=True, slots=True)
class Evidence:
    """The looks and rounds of one operation, oldest first, as far as this process remembers them."""

    looks: tuple[Look, ...] = ()
    rounds: tuple[Round, ...] = ()
    deletes: Mapping[str, DeleteAnswer] = field(default_factory=lambda: MappingProxyType({}))
    """The answer to the last delete that was sent, by UID."""

    def delete_may_come(self, now: Instant) -> bool:
        """Whether a delete that was sent may have its effect though no read shows it yet."""
        return any(answer.may_come(now) for answer in self.deletes.values())

    def with_look(self, look: Look) -> Evidence:
        return Evidence((*self.looks, look)[-KEPT:], self.rounds, self.deletes)

    def with_round(self, seen: Round) -> Evidence:
        return Evidence((*self.looks, seen.look)[-KEPT:], (*self.rounds, seen)[-KEPT:], self.deletes)

    def with_delete(self, uid: str, answer: DeleteAnswer) -> Evidence:
        return Evidence(self.looks, self.rounds, MappingProxyType({**self.deletes, uid: answer}))


def confirms_withdrawal(
    evidence: Evidence, *, withdrawn_since: datetime | None, settle_seconds: float
) -> bool:
    """Two looks at least 1 s apart that no router selects a target, the last one past the settle time.

    Only the unbroken run of such looks at the end counts: an unknown look in between starts the pair again.
    """
    run: list[Look] = []
    for look in reversed(evidence.looks):
        if not look.withdrawn:
            break
        run.append(look)
    if withdrawn_since is None or len(run) < 2:
        return False
    last, first = run[0], run[-1]
    apart = last.started - first.finished >= CONFIRM_SPACING_SECONDS
    return apart and last.started_at.seconds_since(withdrawn_since) >= settle_seconds


def idle_pair(evidence: Evidence, operation: Operation, *, settle_seconds: float) -> Round | None:
    """The second of two consecutive idle rounds, both after the confirmed withdrawal; None without such a pair."""
    if len(evidence.rounds) < 2 or operation.withdrawn_since is None:
        return None
    first, second = evidence.rounds[-2:]
    least, most = IDLE_PAIR_SECONDS
    settled = (first.started_at - operation.withdrawn_since).total_seconds() >= settle_seconds
    spaced = least <= second.started - first.finished <= most
    idle = first.is_idle_for(operation) and second.is_idle_for(operation)
    return second if settled and spaced and idle else None


def wait_before_look(evidence: Evidence) -> float:
    """Seconds from the end of the last look to the next: quick while it may confirm, slower while it cannot."""
    if not evidence.looks:
        return 0.0
    return {Sight.LISTED: 0.5, Sight.UNKNOWN: 2.0}.get(evidence.looks[-1].sight, 1.25)


def wait_before_round(evidence: Evidence, operation: Operation) -> float:
    """Seconds from the end of the last round to the next: 1 after idle, 2 to 5 while busy, 5 to 15 after failures."""
    run = 0
    last: str | None = None
    for seen in reversed(evidence.rounds):
        kind = _kind(seen, operation)
        if last not in (None, kind):
            break
        last, run = kind, run + 1
    if last is None:
        return 0.0
    if last == "idle":
        return IDLE_PAIR_SECONDS[0] + 0.05
    if last == "busy":
        return min(5.0, 2.0 * 1.25 ** (run - 1))
    return min(15.0, 5.0 * 1.5 ** (run - 1))


def _kind(seen: Round, operation: Operation) -> str:
    if seen.is_idle_for(operation):
        return "idle"
    known = seen.verdict in (Verdict.IDLE, Verdict.BUSY) and seen.look.sight is not Sight.UNKNOWN
    return "busy" if known else "failed"
